# everyday git, deterministic
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@x HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
d=1700000000; tick() { d=$((d+60)); export GIT_AUTHOR_DATE="$d +0000" GIT_COMMITTER_DATE="$d +0000"; }
r() { echo "\$ git $*"; $BIN/git "$@" 2>&1; echo "exit $?"; }
tick; r init -b main repo; cd repo
for i in 1 2 3 4 5 6 7 8; do seq $((i*40)) > f$i; mkdir -p d$i; seq $i > d$i/x; r add -A; tick; r commit -q -m "c$i"; done
r checkout -q -b side HEAD~3; seq 5 99 > f9; sed -i s/3/three/ f1; r add -A; tick; r commit -q -m side
r checkout -q main; sed -i s/7/seven/ f1; tick; r commit -q -am main2; tick; r merge -m m side; r log --graph --oneline --stat; r diff HEAD~2; r blame HEAD f1
tick; r rebase HEAD~2; r stash; r grep -n three; r cat-file -p HEAD^{tree}; r ls-tree -r HEAD; r tag -a -m t v1; r describe; r bundle create ../b HEAD main; r clone -q ../repo ../copy; r -C ../copy log --format=%H; r gc -q; r fsck --full; r repack -adfq; r rev-list --objects --all --count; r archive HEAD --format=tar -o ../a.tar; sha1sum < ../a.tar; r bisect start HEAD HEAD~4; r bisect good; r bisect bad; r bisect reset; r format-patch -3 --stdout; r shortlog -sn HEAD; r worktree add -q ../wt side; r -C ../wt status; r submodule status; r cherry-pick side; r cherry-pick --abort; r reflog; r for-each-ref; r count-objects
