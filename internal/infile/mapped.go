package infile

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"unsafe"
)

// Mapped is the content of a file as memory. The system reads it from disk when it is used.
type Mapped struct{ data []byte }

// Map maps the first size bytes of a file into memory until Close. It returns nil if size is 0 or
// the system cannot map files.
func Map(f *os.File, size int64) *Mapped {
	if size <= 0 || int64(int(size)) != size {
		return nil
	}
	data, err := mapFile(f, int(size))
	if err != nil {
		return nil
	}
	return &Mapped{data}
}

// Visit calls visit with the n bytes from byte at on. It returns io.ErrUnexpectedEOF if bytes lie
// beyond the end of the file, which may have become shorter, or if the system cannot read them.
// Then visit may have stopped at any of its reads: what it wrote is undefined. So visit must not
// hold a lock, and must not start a goroutine that reads.
func (m *Mapped) Visit(at, n int64, visit func(b []byte)) (err error) {
	if at < 0 || n < 0 || at > int64(len(m.data)) || n > int64(len(m.data))-at {
		return io.ErrUnexpectedEOF
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if fault, is := r.(interface{ Addr() uintptr }); is && m.contains(fault.Addr()) {
			err = io.ErrUnexpectedEOF
			return
		}
		panic(r)
	}()
	visit(m.data[at:][:n:n])
	return nil
}

// Bytes returns the memory. It is for files that nobody else can make shorter: a read of what is gone ends the program.
func (m *Mapped) Bytes() []byte { return m.data }

// contains reports whether an address is in the memory.
func (m *Mapped) contains(address uintptr) bool {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	return address >= start && address-start < uintptr(len(m.data))
}

// Close unmaps the file. No Visit may run during or after it.
func (m *Mapped) Close() error {
	data := m.data
	m.data = nil
	if err := unmapFile(data); err != nil {
		return fmt.Errorf("unmap: %w", err)
	}
	return nil
}
