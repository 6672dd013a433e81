#!/usr/bin/env zsh
# Types a line into a real interactive shell, has it insert all completions of the last word, and prints the line as it
# then stands.
#
#   complete.zsh zsh FOLDER LINE     FOLDER has _mzcache
#   complete.zsh bash FILE LINE      FILE is the completion
# With '' for FOLDER or FILE the shell finds its completion where it was installed.
emulate -R zsh
zmodload zsh/zpty || exit 99
shell=$1 where=$2 line=$3
work=$(mktemp -d) || exit 99

# Each shell gets two keys: ^A inserts all completions, ^P writes the line to a file and ends the shell.
if [[ $shell == zsh ]]; then
    command="exec env ZDOTDIR=$work zsh -i"
    >$work/.zshrc <<EOF
[[ -n '$where' ]] && fpath=('$where' \$fpath)
autoload -Uz compinit; compinit -u -D
zstyle ':completion:*' completer _all_matches _complete
zstyle ':completion:*:all-matches:*' insert true
bindkey -e; bindkey '^A' complete-word
say() { print -r -- "\$BUFFER" > '$work/answer'; exit; }; zle -N say; bindkey '^P' say
PS1='ready> '
EOF
else
    command="exec bash --noprofile --rcfile $work/.zshrc -i"
    >$work/.zshrc <<EOF
source '${where:-/usr/share/bash-completion/bash_completion}'
bind '"\C-a": insert-completions'
say() { printf '%s\n' "\$READLINE_LINE" > '$work/answer'; exit; }; bind -x '"\C-p": say'
PS1='ready> '
EOF
fi

zpty shell $command || exit 99
trap 'rm -f $work/.zshrc $work/answer; rmdir $work' EXIT     # behind zpty, whose child would inherit it
zpty -r shell said '*ready> *' || exit 99
zpty -w -n shell $line$'\x01\x10'
while zpty -r shell said; do :; done      # until the shell ends; a full terminal would stop it
cat $work/answer
