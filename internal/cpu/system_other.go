//go:build !linux

package cpu

// system fills in nothing: there is no portable way to ask.
func (i *Info) system() {}
