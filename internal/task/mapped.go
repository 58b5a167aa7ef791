package task

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
)

// mapCorpus is ReadCorpus of a text that may exceed the memory. It copies the text to a file without a name in
// the folder of temporary files, which goes when the text is closed or the program ends, and maps it. A copy that takes
// at most half of the free memory is read into it. It returns an error where ReadCorpus does, and a copyError if that folder has
// no room or the system maps no files.
func mapCorpus(path string, info fs.FileInfo, utf8Only bool) (*Corpus, error) {
	f, err := os.CreateTemp("", "farfield-text-*")
	if err != nil {
		return nil, &copyError{err}
	}
	// The mapping holds the content: nobody else can make it shorter.
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil { // a system that keeps open files has no mapping here either
		f.Close()
		return nil, &copyError{errors.Join(errors.ErrUnsupported, os.Remove(f.Name()))}
	}
	c, w := &Corpus{Name: path}, &textCopy{f: f}
	if info.IsDir() {
		err = c.copyFolder(w, path, utf8Only)
	} else {
		c.Files = 1
		err = copyText(w, path)
	}
	if err != nil {
		return nil, err
	}
	if w.size == 0 {
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	if newRoom(2).check(path, w.size) == nil { // the files that were skipped are large
		c.Text = make([]byte, w.size)
		if _, err := f.ReadAt(c.Text, 0); err != nil {
			return nil, &copyError{err}
		}
		return c, nil
	}
	if c.memory = infile.Map(f, w.size); c.memory == nil {
		return nil, &copyError{errors.ErrUnsupported}
	}
	c.Text, c.IsMapped = c.memory.Bytes(), true
	return c, nil
}

// Close gives the temporary file of a text back. The text must not be used after it. Without such a file it does nothing.
func (c *Corpus) Close() error {
	if c.memory == nil {
		return nil
	}
	m := c.memory
	c.Text, c.memory = nil, nil
	return m.Close()
}

// copyError is the error of the copy of a text, as opposed to one of the text.
type copyError struct{ err error }

func (e *copyError) Error() string {
	return fmt.Sprintf("no copy of the text in %s (TMPDIR): %v", os.TempDir(), e.err)
}

func (e *copyError) Unwrap() error { return e.err }

// textCopy is the temporary file that a text is copied to. Its errors are copyErrors.
type textCopy struct {
	f    *os.File
	size int64
}

// Write appends bytes.
func (w *textCopy) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	w.size += int64(n)
	if err != nil {
		return n, &copyError{err}
	}
	return n, nil
}

// cut drops the bytes from size on.
func (w *textCopy) cut(size int64) error {
	_, err := w.f.Seek(size, io.SeekStart)
	if err = errors.Join(err, w.f.Truncate(size)); err != nil {
		return &copyError{err}
	}
	w.size = size
	return nil
}

// checkDisk returns an error if the file system does not hold so many bytes more.
func (w *textCopy) checkDisk(size int64) error {
	if free := infile.FreeDisk(w.f); size > free {
		return &copyError{fmt.Errorf("%d bytes more are needed, %d are free", size, free)}
	}
	return nil
}

// copyText copies a file, inflated and as UTF-8.
func copyText(w *textCopy, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	isText := false
	copyAs := func(decode bool) error {
		_, err := dataset.ReadFile(path, func(r io.Reader) (int64, error) {
			b := bufio.NewReaderSize(r, readPiece)
			head, err := b.Peek(infile.HeadBytes)
			if err != nil && err != io.EOF {
				return 0, err
			}
			if isText = decode && isUTF16(head); isText {
				return io.Copy(w, infile.NewText(b))
			}
			if err := w.checkDisk(info.Size()); err != nil { // a compressed file is shorter than its text
				return 0, err
			}
			return io.Copy(w, b)
		})
		return err
	}
	err = copyAs(true)
	if isText && isMalformed(err) {
		if err = w.cut(0); err == nil {
			err = copyAs(false)
		}
	}
	return err
}

// isMalformed reports whether err says that a text is not UTF-16.
func isMalformed(err error) bool {
	e := infile.FormatError{}
	return errors.As(err, &e)
}

// copyFolder copies the texts of a folder, and counts them.
func (c *Corpus) copyFolder(w *textCopy, path string, utf8Only bool) error {
	names, broken, err := listTexts(path)
	if err != nil {
		return err
	}
	b := bufio.NewReaderSize(nil, readPiece)
	for _, name := range names {
		before := w.size
		binary, valid, err := copyMember(w, b, name, utf8Only)
		if err == nil && !c.count(binary, valid) && w.size > before {
			err = w.cut(before)
		}
		if err != nil {
			return err
		}
	}
	if w.size == 0 {
		return c.noText(path, broken)
	}
	return nil
}

// copyMember copies a file of a folder as UTF-8. It does not copy a binary file, and stops where a file is not UTF-8 if
// it must be. b is a buffer.
func copyMember(w *textCopy, b *bufio.Reader, name string, utf8Only bool) (binary, valid bool, err error) {
	f, err := infile.Open(name)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	begin := func() ([]byte, error) {
		b.Reset(f)
		head, err := b.Peek(binaryHead)
		if err != nil && err != io.EOF {
			return nil, withPath(name, err)
		}
		return head, nil
	}
	head, err := begin()
	if err != nil {
		return false, false, err
	}
	if isUTF16(head) {
		before := w.size
		_, err := io.Copy(w, infile.NewText(b))
		if !isMalformed(err) {
			return false, true, withPath(name, err)
		}
		if err := w.cut(before); err != nil {
			return false, false, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return false, false, err
		}
		if head, err = begin(); err != nil {
			return false, false, err
		}
	}
	if isBinary(head) {
		return true, false, nil
	}
	info, err := f.Stat()
	if err != nil {
		return false, false, err
	}
	if err := w.checkDisk(info.Size()); err != nil {
		return false, false, err
	}
	if !utf8Only {
		_, err = io.Copy(w, b)
		return false, true, withPath(name, err)
	}
	u := &utf8Writer{w: w}
	if _, err = io.Copy(u, b); err == nil && u.n > 0 || errors.Is(err, errNotUTF8) {
		return false, false, nil
	}
	return false, true, withPath(name, err)
}

// errNotUTF8 is the error of a utf8Writer.
var errNotUTF8 = errors.New("not UTF-8")

// utf8Writer passes bytes on, and fails at the first that are not UTF-8.
type utf8Writer struct {
	w    io.Writer
	rest [utf8.UTFMax]byte // rest[:n] begins a character, whose other bytes follow
	n    int               // after the last Write: 0 in UTF-8
}

func (u *utf8Writer) Write(b []byte) (int, error) {
	at := 0
	for u.n > 0 && at < len(b) {
		u.rest[u.n] = b[at]
		u.n, at = u.n+1, at+1
		if utf8.FullRune(u.rest[:u.n]) {
			if !utf8.Valid(u.rest[:u.n]) {
				return 0, errNotUTF8
			}
			u.n = 0
		}
	}
	end := len(b)
	for i := len(b) - 1; i >= max(at, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				end = i
			}
			break
		}
	}
	if !utf8.Valid(b[at:end]) {
		return 0, errNotUTF8
	}
	u.n += copy(u.rest[u.n:], b[end:])
	return u.w.Write(b)
}
