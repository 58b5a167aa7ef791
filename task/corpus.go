package task

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Corpus is text to learn from, and where it came from.
type Corpus struct {
	Name    string // in words
	Text    []byte
	Files   int // that the text was read from
	Skipped int // files that are not text
}

// binaryHead is how much of a file is searched for the NUL byte that text does
// not have.
const binaryHead = 8 << 10

// ReadCorpus reads a file, or every text of a folder and of the folders in it,
// one after another in the order of their names. Names that begin with a dot,
// and what is neither file nor folder, are passed over; files that are not text
// are skipped and counted: those with a NUL byte in their first 8 KiB, and with
// utf8Only those that are not UTF-8. A file that is named itself is read
// whatever it holds. Nothing to read is an error.
func ReadCorpus(path string, utf8Only bool) (*Corpus, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	c := &Corpus{Name: path}
	if !info.IsDir() {
		c.Files = 1
		if c.Text, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if len(c.Text) == 0 {
			return nil, fmt.Errorf("%s: the file is empty", path)
		}
		return c, nil
	}
	// The walk does not follow links, and the folder itself may be one.
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != root && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if isBinary(text) || utf8Only && !utf8.Valid(text) {
			c.Skipped++
			return nil
		}
		c.Files++
		c.Text = append(c.Text, text...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(c.Text) == 0 {
		return nil, fmt.Errorf("%s: the folder holds no text (%d empty files, %d skipped as binary)", path, c.Files, c.Skipped)
	}
	return c, nil
}

func isBinary(text []byte) bool {
	return bytes.IndexByte(text[:min(len(text), binaryHead)], 0) >= 0
}

// DefaultCorpus is the source of the Go toolchain that is installed, or, where
// there is none, a text that the program writes itself.
func DefaultCorpus() *Corpus {
	root, err := goroot()
	if err == nil {
		var c *Corpus
		if c, err = goSource(root); err == nil {
			return c
		}
	}
	c := Invent(1, goSourceBytes)
	c.Name += " (no Go source to read: " + err.Error() + ")"
	return c
}

// goroot returns the folder of the Go toolchain.
func goroot() (string, error) {
	if root := os.Getenv("GOROOT"); root != "" {
		return root, nil
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	root := strings.TrimSpace(string(out))
	if root == "" {
		return "", errors.New("go env GOROOT is empty")
	}
	return root, nil
}

// goSourceBytes and goFileBytes bound the Go source that is read; longer files
// are tables.
const (
	goSourceBytes = 8 << 20
	goFileBytes   = 128 << 10
)

// goSource reads the standard library of the toolchain in root, in the order of
// the names and up to the file that would exceed goSourceBytes: without its
// tests, its tables, and what is tied to one system or to the toolchain itself.
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
		text, err := os.ReadFile(name)
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
