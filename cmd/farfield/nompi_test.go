//go:build !((linux || darwin) && (amd64 || arm64) && mpi)

package main

func init() { withoutMPI = true }
