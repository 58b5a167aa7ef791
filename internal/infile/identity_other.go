//go:build !unix

package infile

import "io/fs"

// systemIdentity returns nothing.
func systemIdentity(fs.FileInfo) string { return "" }
