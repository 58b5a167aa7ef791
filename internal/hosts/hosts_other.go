//go:build !linux

package hosts

import (
	"errors"
	"fmt"
	"time"
)

// Pair is two hosts.
type Pair struct{}

// New returns errors.ErrUnsupported.
func New(string, time.Duration, float64) (*Pair, error) {
	return nil, fmt.Errorf("%w: network namespaces are of Linux", errors.ErrUnsupported)
}

// Command returns nothing.
func (p *Pair) Command(string) []string { return nil }

// Cut does nothing.
func (p *Pair) Cut() {}

// Packets returns 0.
func (p *Pair) Packets() (sent, lost int64) { return 0, 0 }

// Close does nothing.
func (p *Pair) Close() {}
