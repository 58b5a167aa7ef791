// Package hosts makes two hosts of one machine, for tests of programs that run on
// several: network namespaces whose only way to each other is a link with delay, loss
// and an end. It needs Linux, root, the command ip and /dev/net/tun.
package hosts
