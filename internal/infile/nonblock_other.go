//go:build !unix

package infile

// nonblock is 0 on systems where no open waits.
const nonblock = 0
