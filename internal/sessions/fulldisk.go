package sessions

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// isFullDisk reports whether a write failed because its disk, or the user's part of it, is full.
func isFullDisk(err error) bool {
	if err == nil {
		return false
	}
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		// bbolt keeps the text alone of an error of its file's size.
		if errors.Is(err, full) || strings.HasSuffix(err.Error(), full.Error()) {
			return true
		}
	}
	const diskFull, handleDiskFull = syscall.Errno(112), syscall.Errno(39)
	return runtime.GOOS == "windows" && (errors.Is(err, diskFull) || errors.Is(err, handleDiskFull))
}

const (
	// fullShare of the snapshots makes room on a full disk, and what is left is their limit for fullTime:
	// they would fill the disk again.
	fullShare = 4
	fullTime  = 10 * time.Minute
)

// write calls f, which writes what requests need. While the disk is full it removes snapshots that can be computed a
// second time, those that were used the longest ago first, and calls f again. It returns the error of f.
func (m *Manager) write(f func() error) (err error) {
	attempt := func() error {
		if m.o.beforeWrite != nil {
			if err := m.o.beforeWrite(); err != nil {
				return err
			}
		}
		return f()
	}
	err = attempt()
	defer func() {
		if err != nil {
			m.count(func(s *Stats) { s.StoreErrors++ })
		}
	}()
	if !isFullDisk(err) {
		return err
	}
	full := err
	var files, bytes int64
	for isFullDisk(err) {
		n, size := m.files.makeRoom()
		if n == 0 {
			break
		}
		files, bytes = files+n, bytes+size
		err = attempt()
	}
	if files > 0 {
		m.count(func(s *Stats) { s.Dropped += files })
		if m.o.Notify != nil {
			m.o.Notify(fmt.Sprintf("the disk of the store is full (%v): %d snapshots of %d bytes were removed, which are computed again when they are needed", full, files, bytes))
		}
	}
	return err
}

// makeRoom removes a part of the files, those that were used the longest ago first. It returns
// their number and bytes. What is left bounds the files of the next minutes.
func (f *stateFiles) makeRoom() (files, bytes int64) {
	f.cache.mu.Lock()
	least := f.cache.diskBytes / fullShare
	f.cache.mu.Unlock()
	for files == 0 || bytes < least {
		f.cache.mu.Lock()
		e := victim(&f.cache.disk, false)
		var size int64
		if e != nil {
			size = e.fileSize
		}
		f.cache.mu.Unlock()
		if e == nil {
			break
		}
		f.remove(e)
		files, bytes = files+1, bytes+size
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.fullLimit, f.fullUntil = f.cache.diskBytes, time.Now().Add(fullTime)
	return files, bytes
}
