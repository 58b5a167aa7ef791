package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
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

	memory *infile.Mapped // nil: Text is in memory
}

// binaryHead is the number of leading bytes that are searched for NUL, which marks a binary
// file.
const binaryHead = 8 << 10

// readPiece bounds the bytes of one read.
const readPiece = 1 << 20

// ReadCorpus reads a file, or all texts of a folder and its subfolders in the order of their
// names. In a folder it ignores names that begin with a dot and everything but files, folders
// and links to them; a link to a place in the folder is ignored. Texts in UTF-16 with a byte order
// mark become UTF-8. Then it skips and counts files with a NUL byte in their first 8 KiB and, if
// utf8Only is set, files that are not UTF-8. A path to a file is read whatever the file contains, and
// inflated if it is gzip or zstd.
//
// A text that exceeds half of the free memory is an error if inMemory is set. Otherwise it is copied
// to a file in the folder of temporary files and mapped until Close. Without inMemory, a pipe, and a
// text that cannot be copied or mapped, may take all of the free memory. ReadCorpus returns an error if a file cannot be read or inflated, the text is empty, or there is no room for it.
func ReadCorpus(path string, utf8Only, inMemory bool) (*Corpus, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !inMemory && !info.IsDir() && !info.Mode().IsRegular() {
		return readCorpus(path, info, utf8Only, newRoom(1)) // it cannot be read twice
	}
	c, err := readCorpus(path, info, utf8Only, newRoom(2))
	full := (*roomError)(nil)
	if !errors.As(err, &full) {
		return c, err
	}
	if inMemory {
		return nil, fmt.Errorf("%w; tokens of a vocabulary need it whole, bytes and characters do not", err)
	}
	debug.FreeOSMemory() // what has been read of the text
	c, failed := mapCorpus(path, info, utf8Only)
	if noCopy := (*copyError)(nil); !errors.As(failed, &noCopy) {
		return c, failed
	}
	if c, err = readCorpus(path, info, utf8Only, newRoom(1)); errors.As(err, &full) {
		return nil, fmt.Errorf("%w; %w", err, failed)
	}
	return c, err
}

// readCorpus is ReadCorpus of a text in memory. The error of a text that exceeds the room is a roomError.
func readCorpus(path string, info fs.FileInfo, utf8Only bool, room memoryRoom) (*Corpus, error) {
	c := &Corpus{Name: path}
	if !info.IsDir() {
		c.Files = 1
		err := room.check(path, info.Size())
		if err != nil {
			return nil, err
		}
		if c.Text, err = room.appendFile(make([]byte, 0, info.Size()), path, dataset.Inflate); err != nil {
			return nil, err
		}
		if c.Text, err = room.decodeText(c.Text, 0, path); err != nil {
			return nil, err
		}
		if len(c.Text) == 0 {
			return nil, fmt.Errorf("%s: the file is empty", path)
		}
		return c, nil
	}
	names, broken, err := listTexts(path)
	if err != nil {
		return nil, err
	}
	size, err := sumSizes(names)
	if err != nil {
		return nil, err
	}
	if room.check(path, size) != nil { // perhaps without binary files
		all := len(names)
		if names, err = dropBinary(names); err != nil {
			return nil, err
		}
		c.Skipped = all - len(names)
		if size, err = sumSizes(names); err != nil {
			return nil, err
		}
		if err := room.check(path, size); err != nil {
			return nil, err
		}
	}
	// Append in place: no memory for a second copy.
	c.Text = make([]byte, 0, size)
	for _, name := range names {
		before := len(c.Text)
		if c.Text, err = room.appendFile(c.Text, name, asIs); err != nil {
			return nil, err
		}
		if c.Text, err = room.decodeText(c.Text, before, name); err != nil {
			return nil, err
		}
		text := c.Text[before:]
		if !c.count(isBinary(text), !utf8Only || utf8.Valid(text)) {
			c.Text = c.Text[:before]
		}
	}
	if len(c.Text) == 0 {
		return nil, c.noText(path, broken)
	}
	return c, nil
}

// sumSizes returns the bytes of files.
func sumSizes(names []string) (size int64, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

// dropBinary returns the files that their first bytes do not show to be binary.
func dropBinary(names []string) (texts []string, err error) {
	head := make([]byte, binaryHead)
	for _, name := range names {
		f, err := infile.Open(name)
		if err != nil {
			return nil, err
		}
		n, err := io.ReadFull(f, head)
		f.Close()
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return nil, withPath(name, err)
		}
		if !isBinary(head[:n]) || isUTF16(head[:n]) {
			texts = append(texts, name)
		}
	}
	return texts, nil
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
func (c *Corpus) count(binary, valid bool) bool {
	if binary || !valid {
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

// memoryRoom is the memory that a text may take.
type memoryRoom struct {
	free int64 // bytes that were free before anything was read
	part int64 // the text may take one of so many parts of them
}

// newRoom returns one of so many parts of the memory that is free now.
func newRoom(part int64) memoryRoom { return memoryRoom{freeMemory(), part} }

// roomError is the error of a text that exceeds its room.
type roomError struct {
	path string
	need int64
	room memoryRoom
}

func (e *roomError) Error() string {
	may := ""
	if e.room.part == 2 {
		may = ", half of which a text may take"
	}
	return fmt.Sprintf("%s: the text needs %d bytes of memory or more, and %d bytes are free%s", e.path, e.need, e.room.free, may)
}

// limit returns the bytes of the longest text.
func (r memoryRoom) limit() int64 { return min(r.free/r.part, math.MaxInt) }

// check returns a roomError if a text of size bytes exceeds the room.
func (r memoryRoom) check(path string, size int64) error {
	if size > r.limit() {
		return &roomError{path, size, r}
	}
	return nil
}

// leastGrowth is the least capacity of a text that grows.
const leastGrowth = 1 << 16

// grow returns text, which is full, with at least one byte of spare capacity. It returns a roomError if the memory does
// not hold it together with the old one, or the text exceeds the room.
func (r memoryRoom) grow(text []byte, path string) ([]byte, error) {
	old := int64(len(text))
	size := min(max(2*old, leastGrowth), r.free-old, r.limit())
	if size <= old {
		need := old + 1
		if old < r.limit() {
			need += old
		}
		return text, &roomError{path, need, r}
	}
	return append(make([]byte, 0, size), text...), nil
}

// asIs returns r. A folder has gzip files as any other that is not text.
func asIs(r io.Reader) (io.Reader, error) { return r, nil }

// appendFile appends the content of a file or pipe, as open reads it, to dst. Spare capacity
// of dst avoids a copy. It waits for the writer of a pipe. It returns an error if the file
// cannot be read, and a roomError if it is longer than dst has room for and than can be added.
func (room memoryRoom) appendFile(dst []byte, name string, open func(io.Reader) (io.Reader, error)) ([]byte, error) {
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
				var full error
				if dst, full = room.grow(dst, name); full != nil {
					return dst, full
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

// isUTF16 reports whether a text begins with a byte order mark of UTF-16.
func isUTF16(head []byte) bool {
	e, _ := infile.FindEncoding(head)
	return e == infile.UTF16LE || e == infile.UTF16BE
}

// decodeText replaces text[from:] by its characters if it is UTF-16 with a byte order mark. Other
// bytes, also those of a file that only begins like that, stay as they are. It returns a roomError if the memory does
// not hold the characters beside the text, or the text then exceeds the room.
func (room memoryRoom) decodeText(text []byte, from int, path string) ([]byte, error) {
	if !isUTF16(text[from:]) {
		return text, nil
	}
	size, err := io.Copy(io.Discard, infile.NewText(bytes.NewReader(text[from:])))
	if err != nil {
		return text, nil
	}
	if need := int64(cap(text)) + size; need > room.free {
		return text, &roomError{path, need, room}
	}
	decoded := make([]byte, size)
	if _, err := io.ReadFull(infile.NewText(bytes.NewReader(text[from:])), decoded); err != nil {
		return text, err
	}
	if err := room.check(path, int64(from)+size); err != nil {
		return text, err
	}
	return append(text[:from], decoded...), nil
}

// withPath adds the path to an error that lacks it.
func withPath(path string, err error) error {
	if err == nil {
		return nil
	}
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
