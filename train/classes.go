package train

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/train/data"
)

// maxNameBytes bounds a file of names.
const maxNameBytes = 16 << 20

// writeNames writes a file of a run, one quoted name a line. Names may contain any bytes.
// Without names it writes nothing.
func writeNames(path string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		for _, name := range names {
			fmt.Fprintln(b, strconv.Quote(name))
		}
		return b.Flush()
	})
}

// readClasses reads the names of n classes; n below 0: of any number. It returns an error if
// the file is missing, too long or has another number of names.
func readClasses(dir string, n int) ([]string, error) {
	classes, err := readNames(filepath.Join(dir, classesFile), n, "classes")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it has the names of the classes; farfield train --resume --out %s writes it, if the data is still there", err, dir)
	}
	return classes, err
}

// readColumns reads the names of n columns; nil if there is no file. It returns an error if
// the file is too long or has another number of names.
func readColumns(dir string, n int) ([]string, error) {
	columns, err := readNames(filepath.Join(dir, columnsFile), n, "columns")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return columns, err
}

// labelNames returns the names of the classes and of the columns of src; nil: none.
func labelNames(src data.Source) (classes, columns []string) {
	if named, ok := src.(data.ClassNamer); ok {
		classes = named.ClassNames()
	}
	if named, ok := src.(data.ColumnNamer); ok {
		columns = named.ColumnNames()
	}
	return classes, columns
}

// checkLabels returns an error if the data of a task has other names than a checkpoint of the
// run in the folder dir, or than the run where an older checkpoint has none.
func checkLabels(name, dir, checkpoint string, classes, columns []string) error {
	for _, f := range []struct {
		file  string
		names []string
	}{{classesFile, classes}, {columnsFile, columns}} {
		if len(f.names) == 0 {
			continue
		}
		known, err := readNames(filepath.Join(checkpoint, f.file), -1, "")
		if errors.Is(err, fs.ErrNotExist) {
			known, err = readNames(filepath.Join(dir, f.file), -1, "")
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case slices.Equal(f.names, known):
			continue
		}
		difference := fmt.Sprintf("its columns are %q, were %q", f.names, known)
		if f.file == classesFile {
			difference = compareClasses(f.names, known)
		}
		return fmt.Errorf("task %s: %w: %s", name, ErrDataChanged, difference)
	}
	return nil
}

// readNames reads a file of n names of kind; n < 0: of any number. It returns an error if
// the file is missing, too long or has another number of names.
func readNames(path string, n int, kind string) ([]string, error) {
	text, err := infile.ReadBounded(path, maxNameBytes)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %.40q is no quoted name", path, len(names)+1, line)
		}
		if len(names) == n {
			return nil, fmt.Errorf("%s: has more names than the model has %s, %d", path, kind, n)
		}
		names = append(names, name)
	}
	if n >= 0 && len(names) != n {
		return nil, fmt.Errorf("%s: has %d names, the model %d %s", path, len(names), n, kind)
	}
	return names, nil
}
