//go:build !linux

package factorised_test

import "time"

var begin = time.Now()

// clock returns the time that has passed.
func clock() time.Duration { return time.Since(begin) }
