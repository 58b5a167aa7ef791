#!/usr/bin/env bash
# Installs PyTorch and ONNX Runtime below a folder, each where its packages can
# be had; says so, and goes on, where they cannot.
#
#	install.sh FOLDER
#
# PyTorch is that of Debian 13, in a tree of its own, which only root can make
# but everybody can run; DEBIAN_MIRROR names another mirror. ONNX Runtime is that
# of npm.
set -uo pipefail
if [ $# -ne 1 ]; then
	echo "usage: install.sh FOLDER" >&2
	exit 2
fi
mkdir -p "$1" || exit
folder=$(cd "$1" && pwd)

# without NAME REASON: NAME will be missing.
without() { echo "peers: without $1: $2; see $folder/$1.log" >&2; }

torch() {
	local root=$folder/trixie
	[ -e "$root" ] && return
	if [ "$(id -u)" != 0 ]; then
		echo "only root can make a tree of Debian"
		return 1
	fi >&3
	command -v debootstrap || apt-get install -y debootstrap || {
		echo "no debootstrap" >&3
		return 1
	}
	rm -rf "$root.new"
	debootstrap --variant=minbase trixie "$root.new" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} &&
		chroot "$root.new" apt-get install -y --no-install-recommends python3-torch libopenblas0-pthread libopenblas0-openmp || {
		echo "its packages cannot be had" >&3
		return 1
	}
	rm -f "$root.new"/var/cache/apt/archives/*.deb
	mv "$root.new" "$root"
}

onnxruntime() {
	[ -e "$folder/node_modules/onnxruntime-node" ] && return
	command -v npm || {
		echo "no npm" >&3
		return 1
	}
	# Its scripts fetch what only graphics processors need.
	npm install --prefix "$folder" --ignore-scripts --no-save --no-audit --no-fund onnxruntime-node@^1.30.0 || {
		echo "its package cannot be had" >&3
		return 1
	}
}

for name in torch onnxruntime; do
	reason=$({ "$name" >"$folder/$name.log" 2>&1; } 3>&1) || without "$name" "$reason"
done
