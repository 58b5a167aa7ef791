// Package fetch downloads data sets from their canonical addresses, or copies them from a folder.
// A file is verified by its published checksum before it is renamed or unpacked. Without a
// published checksum, the length and the server's validator (ETag or Last-Modified) prove that
// the file is complete and of one version; an answer whose end only the
// connection tells is refused. The SHA-256 of
// such a file is recorded in fetched.json and verified later.
//
// An interrupted download continues if the server still has the same version, and otherwise
// restarts. Limits end downloads from slow servers. One process at a time fetches a set.
//
// Each set has a folder of its name. Nothing is written outside it, and the size of unpacked
// members is bounded.
package fetch
