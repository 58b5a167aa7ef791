// Package fetch brings data sets to a folder from their canonical addresses, or
// from files that are at hand. A file is verified before it gets its name and
// before anything is unpacked: by size and SHA-256 where these are known, by what
// else is known of it otherwise; where nothing is, Set says so. A download that
// was interrupted goes on where it ended.
//
// Below the folder each set has a folder of its name. Nothing is written outside
// it, and an archive cannot unpack to more than the set says.
package fetch
