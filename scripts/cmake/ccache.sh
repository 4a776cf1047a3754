#!/bin/sh
# ccache.sh CCACHE COMPILER ARGUMENTS: compiles through ccache.
#
# CMake compiles header.gch with `-include header`. GCC ignores the header.gch of the previous build there, but
# ccache hashes it in place of the headers: with the same old header.gch and changed headers, the cache would
# return the wrong result. So the old header.gch is deleted first.
#
# A header.gch knows the contents of its headers, comments included, by which `#pragma once` finds that a header
# was read. ccache takes a result for the right one if the preprocessed text is equal, which has no comments.
# Depend mode compares the headers themselves; its results are kept apart from those of earlier times.
for argument; do
  case $argument in
    *.gch)
      rm -f "$argument"
      export CCACHE_DEPEND=1 CCACHE_NAMESPACE=precompiled
      ;;
  esac
done
exec "$@"
