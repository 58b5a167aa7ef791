package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/machine"
)

// Corpus is a text with its origin.
type Corpus struct {
	Name    string // description of the origin
	Text    []byte
	Files   int // files that the text consists of
	Skipped int // files that are not text
	NotUTF8 int // files in Skipped that are not UTF-8; a vocabulary of bytes can read them
	// IsMapped says that Text lies in a temporary file, which the system reads as it is touched: it
	// exceeds half of the free memory.
	IsMapped bool
}

// binaryHead is the number of leading bytes that are searched for NUL, which marks a binary
// file.
const binaryHead = 8 << 10

// readPiece bounds the bytes of one read.
const readPiece = 1 << 20

// ReadCorpus reads a file, or all texts of a folder and its subfolders in the order of their
// names. In a folder it ignores names that begin with a dot and everything but files, folders
// and links to them; a link to a place in the folder is not read twice. It skips and counts files with a NUL byte in their first 8 KiB and, if utf8Only is
// set, files that are not UTF-8. A path to a file is read whatever the file contains, and
// inflated if it is gzip or zstd. Texts in UTF-16 with a byte order mark become UTF-8. A text that exceeds half
// of the free memory is copied to a file in the folder of temporary files, as MapCorpus does. It returns an error if a file
// cannot be read or inflated, the text is empty, or there is no room for it.
func ReadCorpus(path string, utf8Only bool) (*Corpus, error) {
	c, err := readCorpus(path, utf8Only)
	if room := (*roomError)(nil); errors.As(err, &room) {
		if mapped, failed := MapCorpus(path, utf8Only); !errors.Is(failed, errors.ErrUnsupported) {
			return mapped, failed
		}
	}
	return c, err
}

// readCorpus is ReadCorpus of a text in memory. The error of a text that exceeds half of the free memory is a
// roomError.
func readCorpus(path string, utf8Only bool) (*Corpus, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	c := &Corpus{Name: path}
	if !info.IsDir() {
		c.Files = 1
		if err := checkRoom(path, info.Size()); err != nil {
			return nil, err
		}
		if c.Text, err = appendFile(make([]byte, 0, info.Size()), path, dataset.Inflate); err != nil {
			return nil, err
		}
		c.Text = decodeText(c.Text, 0)
		if len(c.Text) == 0 {
			return nil, fmt.Errorf("%s: the file is empty", path)
		}
		return c, nil
	}
	names, broken, err := listTexts(path)
	if err != nil {
		return nil, err
	}
	var size int64
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		size += info.Size()
	}
	if err := checkRoom(path, size); err != nil {
		return nil, err
	}
	// Append in place: no memory for a second copy.
	c.Text = make([]byte, 0, size)
	for _, name := range names {
		before := len(c.Text)
		if c.Text, err = appendFile(c.Text, name, asIs); err != nil {
			return nil, err
		}
		c.Text = decodeText(c.Text, before)
		if !c.count(c.Text[before:], utf8Only) {
			c.Text = c.Text[:before]
		}
	}
	if len(c.Text) == 0 {
		return nil, c.noText(path, broken)
	}
	return c, nil
}

// listTexts returns the files of a folder that may be texts, and the number of links without a target.
func listTexts(path string) (names []string, broken int, err error) {
	err = walkFiles(path, func(e folderEntry) {
		switch {
		case e.kind.IsRegular() && !e.isListed:
			names = append(names, e.path)
		case e.kind&fs.ModeSymlink != 0:
			broken++
		}
	})
	return names, broken, err
}

// count counts a file of a folder, and reports whether it belongs to the text.
func (c *Corpus) count(text []byte, utf8Only bool) bool {
	binary := isBinary(text)
	if binary || utf8Only && !utf8.Valid(text) {
		c.Skipped++
		if !binary {
			c.NotUTF8++
		}
		return false
	}
	c.Files++
	return true
}

// noText is the error of a folder that holds none.
func (c *Corpus) noText(path string, broken int) error {
	return fmt.Errorf("%s: the folder holds no text (%d empty files, %d skipped as binary, %d as not UTF-8, %d links without a target)", path, c.Files, c.Skipped-c.NotUTF8, c.NotUTF8, broken)
}

// freeMemory is machine.FreeMemory, but in tests.
var freeMemory = machine.FreeMemory

// roomError is the error of a text that exceeds half of the free memory.
type roomError struct {
	path       string
	size, free int64
}

func (e *roomError) Error() string {
	return fmt.Sprintf("%s: %d bytes of text need twice as much memory, and %d bytes are free; give a part of it, or several runs", e.path, e.size, e.free)
}

// checkRoom returns a roomError if a text of size bytes exceeds half of the free memory.
func checkRoom(path string, size int64) error {
	if free := freeMemory(); size > free/2 {
		return &roomError{path, size, free}
	}
	return nil
}

// asIs returns r. A folder has gzip files as any other that is not text.
func asIs(r io.Reader) (io.Reader, error) { return r, nil }

// appendFile appends the content of a file or pipe, as open reads it, to dst. Spare capacity
// of dst avoids a copy. It waits for the writer of a pipe. It returns an error if the file
// cannot be read, or is longer than dst has room for and exceeds half of the free memory.
func appendFile(dst []byte, name string, open func(io.Reader) (io.Reader, error)) ([]byte, error) {
	f, err := infile.OpenStream(context.Background(), name)
	if err != nil {
		return dst, err
	}
	defer f.Close()
	r, err := open(f)
	if err != nil {
		return dst, withPath(name, err)
	}
	for {
		if len(dst) == cap(dst) {
			// A file of the expected size ends here.
			var more [1]byte
			n, err := r.Read(more[:])
			if n > 0 {
				if err := checkRoom(name, 2*int64(len(dst))); err != nil { // append doubles it
					return dst, err
				}
				dst = append(dst, more[0])
			}
			if err == io.EOF {
				return dst, nil
			}
			if err != nil {
				return dst, withPath(name, err)
			}
			continue
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), len(dst)+readPiece)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, withPath(name, err)
		}
	}
}

// decodeText replaces text[from:] by its characters if it is UTF-16 with a byte order mark. Other
// bytes, also those of a file that only begins like that, stay as they are.
func decodeText(text []byte, from int) []byte {
	if e, _ := infile.FindEncoding(text[from:]); e != infile.UTF16LE && e != infile.UTF16BE {
		return text
	}
	decoded, err := io.ReadAll(infile.NewText(bytes.NewReader(text[from:])))
	if err != nil {
		return text
	}
	return append(text[:from], decoded...)
}

// withPath adds the path to an error that lacks it.
func withPath(path string, err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// isBinary reports whether a text has a NUL byte in its first binaryHead bytes.
func isBinary(text []byte) bool {
	return bytes.IndexByte(text[:min(len(text), binaryHead)], 0) >= 0
}

// DefaultCorpus returns the source of the installed Go toolchain. Without a toolchain it
// returns a text of InventText.
func DefaultCorpus() *Corpus {
	root, err := findGoRoot()
	if err == nil {
		var c *Corpus
		if c, err = goSource(root); err == nil {
			return c
		}
	}
	c := InventText(1, goSourceBytes)
	c.Name += " (no Go source to read: " + err.Error() + ")"
	return c
}

// findGoRoot returns the folder of the Go toolchain. It returns an error if GOROOT is unset
// and the go command fails.
func findGoRoot() (string, error) {
	if root := os.Getenv("GOROOT"); root != "" {
		return root, nil
	}
	c := exec.Command("go", "env", "GOROOT")
	// A go.mod of the current folder could name another toolchain, which go would fetch and run.
	c.Dir = filepath.VolumeName(os.TempDir()) + string(filepath.Separator)
	out, err := c.Output()
	if err != nil {
		return "", err
	}
	root := strings.TrimSpace(string(out))
	if root == "" {
		return "", errors.New("go env GOROOT is empty")
	}
	return root, nil
}

// goSourceBytes bounds the Go source in total, goFileBytes each file: longer files are tables.
const (
	goSourceBytes = 8 << 20
	goFileBytes   = 128 << 10
)

// goSource reads the standard library of the toolchain in root. It omits tests, tables, and
// packages of one system or of the toolchain itself. It reads files in the order of their
// names and stops before goSourceBytes are exceeded.
func goSource(root string) (*Corpus, error) {
	src := filepath.Join(root, "src")
	c := &Corpus{}
	err := filepath.WalkDir(src, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case "cmd", "internal", "runtime", "simd", "syscall", "testdata", "vendor":
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() > goFileBytes {
			return nil
		}
		text, err := infile.ReadFile(name)
		if err != nil {
			return err
		}
		if len(c.Text)+len(text) > goSourceBytes {
			return filepath.SkipAll
		}
		c.Files++
		c.Text = append(c.Text, text...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(c.Text) == 0 {
		return nil, fmt.Errorf("%s: holds no Go source", src)
	}
	c.Name = "the source of the Go standard library in " + src
	return c, nil
}
