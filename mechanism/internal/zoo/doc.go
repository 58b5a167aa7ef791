// Package zoo computes the mechanisms of other papers than those that farfield reproduces: patterns,
// landmarks, clusters, hashes, low rank, random features. A constructor reads the settings of its row,
// which is in package mechanism, as are the tests that hold for every row.
package zoo
