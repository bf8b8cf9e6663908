#!/bin/sh
# usage: isa_symbols.sh OBJECT...   Fails if an object compiled for one instruction set has symbols that the linker may
# merge with other files' (weak functions): the survivor might be code that this machine cannot run.
status=0
for object in "$@"; do
  case $object in */cpu/a*x*/*) ;; *) continue ;; esac
  weak=$(nm -C "$object" | grep -E ' [WVu] ') && { echo "$object:"; echo "$weak"; status=1; }
  checked=yes
done
[ -n "$checked" ] || { echo "no object of an instruction set among: $*"; exit 1; }
exit $status
