//go:build !linux

package cpu

// readSystem sets nothing: there is no portable interface.
func (i *Info) readSystem() {}
