// Package fetch brings data sets to a folder from their canonical addresses, or
// from files that are at hand. A file is verified before it gets its name and
// before anything is unpacked: by a published checksum where there is one. Where
// there is none, its length and the validator of its server (ETag or
// Last-Modified) prove that it is whole and of one version; an answer that has no
// length is refused. The SHA-256 of such a file is noted in fetched.json, and
// verified from then on.
//
// A download that was interrupted goes on where it ended if the server still has
// the version that it is of, and begins anew otherwise. Limits end downloads from
// servers that are too slow. One process at a time fetches a set.
//
// Below the folder each set has a folder of its name. Nothing is written outside
// it, and an archive cannot unpack to more than the set says.
package fetch
