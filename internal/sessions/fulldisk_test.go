package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// smallDisk is a disk of a number of bytes that has the files of a folder.
type smallDisk struct {
	mu    sync.Mutex
	dir   string
	bytes int64 // 0: it never is full
	lines []string
}

// used returns the bytes of the files.
func (d *smallDisk) used() (n int64) {
	_ = filepath.WalkDir(d.dir, func(_ string, e fs.DirEntry, err error) error { // files may go meanwhile
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// write is the error of a write.
func (d *smallDisk) write() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes > 0 && d.used() > d.bytes {
		return &os.PathError{Op: "write", Path: "sessions.db", Err: syscall.ENOSPC}
	}
	return nil
}

func (d *smallDisk) set(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes = bytes
}

func (d *smallDisk) notify(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// waitSaved waits until n states are on disk.
func waitSaved(t *testing.T, store string, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(files(t, store, statesFolder)) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d states are saved, want %d", len(files(t, store, statesFolder)), n)
		}
	}
}

// On a full disk snapshots make room for what requests need, and sessions go on from the log.
func TestSnapshotsMakeRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := &smallDisk{dir: t.TempDir()}
	o := Options{Model: newNearFar(t), Store: disk.dir, Notify: disk.notify, beforeWrite: disk.write}
	m := open(t, o)
	ids := tokens(600, 1)
	s := must[Info](t)(m.Create(ctx, ids))
	for i := range uint64(8) {
		must[Info](t)(m.Create(ctx, tokens(400, 2+i)))
	}
	waitSaved(t, disk.dir, 9)
	exported := must[[]byte](t)(m.Export(ctx, s.ID))
	disk.set(disk.used() - 1)
	more := tokens(20, 50)
	must[Info](t)(m.Append(ctx, s.ID, more))
	ids = append(ids, more...)
	dropped := m.Stats().Dropped
	if len(disk.lines) != 1 || !strings.Contains(disk.lines[0], "the disk of the store is full (write sessions.db: no space left on device): ") || !strings.Contains(disk.lines[0], fmt.Sprint(dropped, " snapshots of ")) || dropped < 1 {
		t.Errorf("%d snapshots are dropped, lines are %q", dropped, disk.lines)
	}
	must[Result](t)(m.Generate(ctx, s.ID, Draw{MaxTokens: 2}, nil))
	disk.set(disk.used() - 1)
	must[Info](t)(m.Import(ctx, exported)) // a file, then a record
	left := m.Stats().DiskBytes - m.imports.bytes()
	for i := range uint64(3) {
		must[Info](t)(m.Create(ctx, tokens(400, 20+i)))
	}
	closed(t, m) // it saves no more than what was left
	if now := m.Stats().DiskBytes - m.imports.bytes(); now > left {
		t.Errorf("snapshots take %d bytes of a full disk, %d were left", now, left)
	}

	disk.set(disk.used() - 1)
	m = open(t, o) // opening writes, too
	r := must[Result](t)(m.Generate(ctx, s.ID, Draw{MaxTokens: 1}, nil))
	if r.Info.Tokens != int64(len(ids)+3) {
		t.Errorf("session has %d tokens, want %d", r.Info.Tokens, len(ids)+3)
	}
	disk.set(1)
	_, err := m.Append(ctx, s.ID, more)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error is %v", err)
	}
	for end := time.Now().Add(20 * time.Second); len(files(t, disk.dir, statesFolder)) > 0; time.Sleep(5 * time.Millisecond) { // one may be on its way
		if time.Now().After(end) {
			t.Fatalf("%d snapshots are left", len(files(t, disk.dir, statesFolder)))
		}
	}
	disk.set(0)
	if i := must[Info](t)(m.Append(ctx, s.ID, more)); i.Tokens != r.Info.Tokens+int64(len(more)) {
		t.Errorf("session has %d tokens after the disk had room, want %d", i.Tokens, r.Info.Tokens+int64(len(more)))
	}
}

func TestFullDisksAreKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {errors.New("another"), false}, {syscall.EIO, false}, {fs.ErrNotExist, false},
		{syscall.ENOSPC, true}, {fmt.Errorf("a: %w", &os.PathError{Op: "write", Path: "b", Err: syscall.EDQUOT}), true},
		{fmt.Errorf("file resize error: %s", &os.PathError{Op: "truncate", Path: "b", Err: syscall.ENOSPC}), true},
	} {
		if got := isFullDisk(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if n, _ := (&stateFiles{cache: newCache()}).makeRoom(); n != 0 {
		t.Errorf("%d files of none are removed", n)
	}
}
