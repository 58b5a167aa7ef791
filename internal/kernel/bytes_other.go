//go:build !amd64 || purego

package kernel

// ByteTables returns the tables that the instruction set in use allows, best first and plain Go
// last.
func ByteTables() []*ByteTable { return []*ByteTable{genericBytes} }
