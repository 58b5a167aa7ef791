//go:build !linux

package attention_test

import "time"

var begin = time.Now()

// clock returns the time that has passed.
func clock() time.Duration { return time.Since(begin) }
