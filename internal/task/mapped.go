package task

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
)

// MapCorpus is ReadCorpus of a text that may exceed the memory. It copies the text to a file without a name in
// the folder of temporary files, which goes when the program ends, and maps it. Only one file of a folder at a time is in
// memory. It returns an error where ReadCorpus does, if that folder has no room, if path is a pipe, and errors.ErrUnsupported
// where the system maps no files.
func MapCorpus(path string, utf8Only bool) (_ *Corpus, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is no file that can be read twice, and exceeds half of the free memory", path)
	}
	f, err := os.CreateTemp("", "farfield-text-*")
	if err != nil {
		return nil, err
	}
	// The mapping holds the content: nobody else can make it shorter.
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.ErrUnsupported // a system that keeps open files has no mapping here either
	}
	c, w := &Corpus{Name: path, IsMapped: true}, bufio.NewWriterSize(f, readPiece)
	if info.IsDir() {
		err = c.copyFolder(w, path, utf8Only)
	} else {
		c.Files = 1
		err = copyText(w, path)
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	m := infile.Map(f, size)
	if m == nil {
		return nil, errors.ErrUnsupported
	}
	c.Text = m.Bytes()
	return c, nil
}

// copyText copies a file, inflated and as UTF-8.
func copyText(w io.Writer, path string) error {
	_, err := dataset.ReadFile(path, func(r io.Reader) (int64, error) {
		b := bufio.NewReaderSize(r, readPiece)
		head, err := b.Peek(4)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if e, _ := infile.FindEncoding(head); e == infile.UTF16LE || e == infile.UTF16BE {
			return io.Copy(w, infile.NewText(b))
		}
		return io.Copy(w, b)
	})
	return err
}

// copyFolder copies the texts of a folder, and counts them.
func (c *Corpus) copyFolder(w io.Writer, path string, utf8Only bool) error {
	names, broken, err := listTexts(path)
	if err != nil {
		return err
	}
	var text []byte
	size := 0
	for _, name := range names {
		if skip, err := beginsBinary(name); err != nil {
			return err
		} else if skip {
			c.Skipped++
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if text, err = appendFile(slices.Grow(text[:0], int(info.Size())), name, asIs); err != nil {
			return err
		}
		if text = decodeText(text, 0); !c.count(text, utf8Only) {
			continue
		}
		n, err := w.Write(text)
		if err != nil {
			return err
		}
		size += n
	}
	if size == 0 {
		return c.noText(path, broken)
	}
	return nil
}

// beginsBinary reports whether a file is skipped by its head, before it is read as a whole.
func beginsBinary(name string) (skip bool, err error) {
	f, err := infile.OpenStream(context.Background(), name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, binaryHead)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false, withPath(name, err)
	}
	e, _ := infile.FindEncoding(head[:n])
	return isBinary(head[:n]) && e != infile.UTF16LE && e != infile.UTF16BE, nil
}
