# bash completion for mzcache; made by: mzcache completion bash

_mzcache_words()
{
  COMPREPLY=($(compgen -W "$1" -- "$cur"))
}

_mzcache_pids()
{
  _mzcache_words "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')"
}

_mzcache_files()
{
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

# Completes as the program of run would; fails while that is not named yet.
_mzcache_program()
{
  local i
  for ((i = 2; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --) ((i++)); break ;;
      -q | --quiet | -n | --dry-run | -h | --help) ;;
      -*) ((i++)); if [ "${COMP_WORDS[i]}" = = ]; then ((i++)); fi ;;
      *) break ;;
    esac
  done
  if ((i > COMP_CWORD)) || { ((i == COMP_CWORD)) && [[ $cur == -* ]]; }; then
    return 1
  fi
  if declare -F _command_offset >/dev/null; then
    _command_offset "$i"
  elif ((i == COMP_CWORD)); then
    COMPREPLY=($(compgen -c -- "$cur"))
  else
    _mzcache_files
  fi
}

_mzcache()
{
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]}
  if ((COMP_CWORD == 1)); then
    _mzcache_words 'run ps status evict restore limit option top log doctor profile pack --help --version'
    return
  fi
  # --kv=q8 comes as three words.
  if [ "$cur" = = ]; then
    cur=
  elif [ "$prev" = = ]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if [ "$cmd" = run ] && _mzcache_program; then
    return
  fi
  case $cmd:$prev in
    run:--kv) _mzcache_words 'exact q8'; return ;;
    run:--order) _mzcache_words 'backward forward random'; return ;;
    run:--overlap) _mzcache_words 'full none alloc-reload reload-prefill'; return ;;
    run:--paths) _mzcache_words 'parallel sequential'; return ;;
    run:--rule) _mzcache_words 'exact published'; return ;;
    run:--workers) return ;;
    run:--request) return ;;
    run:--uring) _mzcache_words 'off on'; return ;;
    run:--clean) _mzcache_words 'off on'; return ;;
    run:--swap-folder) _mzcache_files; return ;;
    run:--swap-force) _mzcache_words 'off on'; return ;;
    run:--repacked) _mzcache_words 'off on'; return ;;
    run:--limit) _mzcache_words 'off'; return ;;
    run:--idle) _mzcache_words 'off'; return ;;
    run:--step) _mzcache_words 'own'; return ;;
    run:--floor) return ;;
    run:--headroom) _mzcache_words 'own'; return ;;
    run:--hold) return ;;
    run:--clean-on-battery) _mzcache_words 'on off'; return ;;
    run:--pressure) _mzcache_words 'on off'; return ;;
    run:--control) _mzcache_words 'on off'; return ;;
    run:--runtime-dir) _mzcache_files; return ;;
    run:--log) _mzcache_words 'error warn info debug'; return ;;
    status:--pid | status:-p) _mzcache_pids; return ;;
    evict:--to | evict:-t) return ;;
    evict:--pid | evict:-p) _mzcache_pids; return ;;
    restore:--pid | restore:-p) _mzcache_pids; return ;;
    limit:--pid | limit:-p) _mzcache_pids; return ;;
    option:--pid | option:-p) _mzcache_pids; return ;;
    top:--pid | top:-p) _mzcache_pids; return ;;
    top:--interval | top:-i) return ;;
    top:--count | top:-n) return ;;
    log:--pid | log:-p) _mzcache_pids; return ;;
    profile:--swap-folder | profile:-s) _mzcache_files; return ;;
    profile:--workers | profile:-w) return ;;
    option:kv) _mzcache_words 'exact q8'; return ;;
    option:order) _mzcache_words 'backward forward random'; return ;;
    option:overlap) _mzcache_words 'full none alloc-reload reload-prefill'; return ;;
    option:paths) _mzcache_words 'parallel sequential'; return ;;
    option:rule) _mzcache_words 'exact published'; return ;;
    option:uring) _mzcache_words 'off on'; return ;;
    option:clean) _mzcache_words 'off on'; return ;;
    option:swap-folder) _mzcache_files; return ;;
    option:swap-force) _mzcache_words 'off on'; return ;;
    option:repacked) _mzcache_words 'off on'; return ;;
    option:limit) _mzcache_words 'off'; return ;;
    option:idle) _mzcache_words 'off'; return ;;
    option:step) _mzcache_words 'own'; return ;;
    option:headroom) _mzcache_words 'own'; return ;;
    option:clean-on-battery) _mzcache_words 'on off'; return ;;
    option:pressure) _mzcache_words 'on off'; return ;;
    option:control) _mzcache_words 'on off'; return ;;
    option:runtime-dir) _mzcache_files; return ;;
    option:log) _mzcache_words 'error warn info debug'; return ;;
  esac
  case $cmd:$cur in
    run:-*) _mzcache_words '--quiet --dry-run --kv --order --overlap --paths --rule --workers --request --uring --clean --swap-folder --swap-force --repacked --limit --idle --step --floor --headroom --hold --clean-on-battery --pressure --control --runtime-dir --log --help' ;;
    ps:-*) _mzcache_words '--all --json --help' ;;
    status:-*) _mzcache_words '--pid --json --help' ;;
    evict:-*) _mzcache_words '--to --pid --json --help' ;;
    restore:-*) _mzcache_words '--wait --stop --pid --json --help' ;;
    limit:-*) _mzcache_words '--pid --all --json --help' ;;
    option:-*) _mzcache_words '--pid --all --json --help' ;;
    top:-*) _mzcache_words '--pid --interval --count --plain --help' ;;
    log:-*) _mzcache_words '--follow --pid --json --help' ;;
    doctor:-*) _mzcache_words '--json --help' ;;
    profile:-*) _mzcache_words '--swap-folder --workers --quick --force --json --help' ;;
    pack:-*) _mzcache_words '--force --help' ;;
    completion:-*) _mzcache_words '--help' ;;
    limit:*) _mzcache_words 'off' ;;
    option:*) _mzcache_words 'kv order overlap paths rule workers request uring clean swap-folder swap-force repacked limit idle step floor headroom hold clean-on-battery pressure control runtime-dir log' ;;
    doctor:*) COMPREPLY=($(compgen -c -- "$cur")) ;;
    pack:*) _mzcache_files ;;
    completion:*) _mzcache_words 'bash zsh' ;;
  esac
}
complete -F _mzcache mzcache
