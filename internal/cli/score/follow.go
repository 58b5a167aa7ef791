package score

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/farfield-ml/farfield/internal/infile"
)

// rotatedSuffix is where a rotation puts a log.
const rotatedSuffix = ".1"

// Where a text is that a state is of.
type foundPlace int

const (
	same    foundPlace = iota // in the file of its name
	rotated                   // in the file beside it that a rotation makes
	lost                      // nowhere
)

// find opens the file with the scored text, at the next position. If the name leads to
// another file, that file follows.
func (t *scoring) find() (foundPlace, error) {
	if f, ok := t.in.(*os.File); ok {
		if begins := t.has(f); begins != nil {
			t.begins = begins
			_, err := f.Seek(t.Offset, io.SeekStart)
			return same, err
		}
	}
	old, err := infile.Open(t.cmd.File + rotatedSuffix)
	if err != nil {
		return lost, nil
	}
	begins := t.has(old)
	if begins == nil || t.Offset == 0 {
		old.Close()
		return lost, nil
	}
	t.begins = begins
	if f, ok := t.in.(*os.File); ok {
		t.next = f
	}
	t.in = old
	_, err = old.Seek(t.Offset, io.SeekStart)
	return rotated, err
}

// has returns the first bytes of f if they begin the scored text, else nil.
func (t *scoring) has(f *os.File) []byte {
	info, err := f.Stat()
	if err != nil || info.Size() < t.Offset+t.Rest {
		return nil
	}
	b, rest := make([]byte, min(t.Offset, headBytes)), make([]byte, min(t.Rest, headBytes))
	if _, err := f.ReadAt(b, 0); err != nil || headSum(b) != t.Head {
		return nil
	}
	if _, err := f.ReadAt(rest, t.Offset); len(rest) > 0 && (err != nil || headSum(rest) != t.RestHead) {
		return nil
	}
	return b
}

// wait is where the end of a followed file is met: until more may be there.
func (t *scoring) wait() error {
	if next, err := t.look(); err != nil || next != nil {
		if err == nil && next == t.in {
			return t.turn(next)
		}
		t.next = next // after the rest of the current file
		return err
	}
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-t.e.Context.Done():
		return t.e.Context.Err()
	case <-timer.C:
		return nil
	}
}

// look returns another file if the name leads to it, or the open file if it was
// truncated; nil: neither. An empty file is ignored, because its writer may still write
// to the earlier file.
func (t *scoring) look() (*os.File, error) {
	now, _ := t.in.(*os.File)
	info, err := os.Stat(t.cmd.File)
	switch {
	case err != nil:
		t.remark(err)
		return nil, nil
	case now == nil:
	default:
		was, err := now.Stat()
		if err != nil {
			return nil, err
		}
		if os.SameFile(info, was) {
			t.spoke = ""
			if info.Size() < t.Offset+int64(len(t.src.Unread)) || !t.unchanged(now) {
				fmt.Fprintf(t.e.Notes(), "%s was truncated: goes on from its beginning\n", t.cmd.File)
				return now, nil
			}
			return nil, nil
		}
		if info.Size() == 0 {
			return nil, nil
		}
	}
	next, err := infile.Open(t.cmd.File)
	if err != nil {
		t.remark(err)
		return nil, nil
	}
	t.spoke = ""
	if now != nil || t.Number > 0 {
		fmt.Fprintf(t.e.Notes(), "%s is another file: goes on with it\n", t.cmd.File)
	}
	return next, nil
}

// unchanged reports whether f begins with the scored text.
func (t *scoring) unchanged(f *os.File) bool {
	b := make([]byte, len(t.begins))
	_, err := f.ReadAt(b, 0)
	return err == nil && bytes.Equal(b, t.begins)
}

// remark says once why a file cannot be read.
func (t *scoring) remark(err error) {
	text := fmt.Sprintf("%s cannot be read: %v", t.cmd.File, err)
	if errors.Is(err, fs.ErrNotExist) {
		text = t.cmd.File + " is gone"
		if t.in == nil && t.Number == 0 {
			text = t.cmd.File + " is missing"
		}
	}
	if text != t.spoke {
		t.spoke = text
		fmt.Fprintf(t.e.Notes(), "%s; waits for it\n", text)
	}
}

// turn ends the file that is read, and goes on at the beginning of next.
func (t *scoring) turn(next *os.File) error {
	if err := t.last(); err != nil {
		return err
	}
	if now, ok := t.in.(*os.File); ok && now != next {
		now.Close()
	}
	t.in, t.next = next, nil
	t.src.Reader, t.src.Unread = next, nil
	t.Offset, t.Parts, t.begins = 0, 0, nil
	if _, err := next.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := t.skipMark(); err != nil {
		return err
	}
	return t.save()
}
