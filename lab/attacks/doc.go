// Package attacks holds the tests that kill farfield and fill its disk.
//
//	go test ./attacks -tries 100
//
// Each test builds the command, lets every kind of work that can be continued run to its end once, and compares
// that with work that was killed at random moments, or had no room on its disk, and was then continued.
package attacks
