// Package zoo computes published mechanisms that are neither polynomials of the score, nor other fixed
// feature maps, nor multipole: patterns, landmarks, clusters, hashes, low rank, random features. A constructor reads the settings of its row,
// which is in package mechanism, as are the tests that hold for every row.
package zoo
