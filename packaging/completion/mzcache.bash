# bash completion for mzcache; made by: mzcache completion bash
_mzcache()
{
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]} words i
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W 'run ps status evict restore limit option top log doctor profile pack --help --version' -- "$cur"))
    return
  fi
  # Behind its -- or program, run completes that program's arguments.
  if [ "$cmd" = run ]; then
    for ((i = 2; i < COMP_CWORD; i++)); do
      case ${COMP_WORDS[i]} in --) COMPREPLY=($(compgen -c -f -- "$cur")); return ;; esac
    done
  fi
  case $cmd:$prev in
    run:--kv) COMPREPLY=($(compgen -W 'exact q8' -- "$cur")); return ;;
    run:--order) COMPREPLY=($(compgen -W 'backward forward random' -- "$cur")); return ;;
    run:--overlap) COMPREPLY=($(compgen -W 'full none alloc-reload reload-prefill' -- "$cur")); return ;;
    run:--paths) COMPREPLY=($(compgen -W 'parallel sequential' -- "$cur")); return ;;
    run:--rule) COMPREPLY=($(compgen -W 'exact published' -- "$cur")); return ;;
    run:--uring) COMPREPLY=($(compgen -W 'off on' -- "$cur")); return ;;
    run:--clean) COMPREPLY=($(compgen -W 'off on' -- "$cur")); return ;;
    run:--swap-folder) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    run:--swap-force) COMPREPLY=($(compgen -W 'off on' -- "$cur")); return ;;
    run:--repacked) COMPREPLY=($(compgen -W 'off store' -- "$cur")); return ;;
    run:--clean-on-battery) COMPREPLY=($(compgen -W 'on off' -- "$cur")); return ;;
    run:--pressure) COMPREPLY=($(compgen -W 'on off' -- "$cur")); return ;;
    run:--control) COMPREPLY=($(compgen -W 'on off' -- "$cur")); return ;;
    run:--runtime-dir) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    run:--log) COMPREPLY=($(compgen -W 'error warn info debug' -- "$cur")); return ;;
    status:--pid) COMPREPLY=($(compgen -W "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
    evict:--pid) COMPREPLY=($(compgen -W "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
    restore:--pid) COMPREPLY=($(compgen -W "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
    limit:--pid) COMPREPLY=($(compgen -W "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
    option:--pid) COMPREPLY=($(compgen -W "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
    top:--pid) COMPREPLY=($(compgen -W "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
    log:--pid) COMPREPLY=($(compgen -W "$(mzcache ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
    profile:--swap-folder) COMPREPLY=($(compgen -f -- "$cur")); return ;;
  esac
  case $cmd in
    run) words='--quiet --dry-run --kv --order --overlap --paths --rule --workers --request --uring --clean --swap-folder --swap-force --repacked --limit --idle --step --floor --headroom --hold --clean-on-battery --pressure --control --runtime-dir --log --help' ;;
    ps) words='--all --json --help' ;;
    status) words='--pid --json --help' ;;
    evict) words='--to --pid --json --help' ;;
    restore) words='--wait --stop --pid --json --help' ;;
    limit) words='--pid --all --json --help' ;;
    option) words='--pid --all --json --help' ;;
    top) words='--pid --interval --count --plain --help' ;;
    log) words='--follow --pid --help' ;;
    doctor) words='--json --help' ;;
    profile) words='--swap-folder --workers --quick --force --json --help' ;;
    pack) words='--force --help' ;;
    completion) words='--help' ;;
  esac
  case $cmd:$cur in
    *:-*) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    run:*) COMPREPLY=($(compgen -c -- "$cur")) ;;
    pack:*) COMPREPLY=($(compgen -f -- "$cur")) ;;
    limit:*) COMPREPLY=($(compgen -W off -- "$cur")) ;;
  esac
}
complete -F _mzcache mzcache
