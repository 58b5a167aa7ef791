// Package fetch downloads data sets and models from their canonical addresses, or copies them from
// a folder. A file is verified by its published checksum before it is renamed or unpacked. If none
// is published, the length and the server's validator (ETag or Last-Modified) show that the file is
// complete and of one version; an answer that ends only with its connection is refused. The SHA-256
// of such a file is recorded in fetched.json, and verified later.
//
// An interrupted download continues if the server still has the same version, and otherwise starts
// again. Downloads from servers that are too slow end with an error. One process at a time fetches
// a set.
//
// Each set has a folder with its name. Nothing is written outside it, and the size of unpacked
// members is bounded.
package fetch
