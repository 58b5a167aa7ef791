//go:build !unix

package infile

// nonblock is nothing where no open waits.
const nonblock = 0
