package suite

import (
	"os"
	"runtime/debug"
)

// CollectRarely lets the heap of tests grow to five times what is live before the collector runs, because
// tests allocate much and keep little. Call it in TestMain. It changes nothing with GOGC or GOMEMLIMIT in
// the environment, as tests that measure memory have it.
func CollectRarely() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400)
	}
}
