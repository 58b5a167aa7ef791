//go:build !linux

package cpu

// readSystem fills in nothing: there is no portable way to ask.
func (i *Info) readSystem() {}
