package train

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// maxClassBytes bounds the file of class names.
const maxClassBytes = 16 << 20

// writeClasses writes the names of classes to the folder of a run, one quoted name a
// line. Names may contain any bytes.
func writeClasses(dir string, classes []string) error {
	return atomicfile.Write(filepath.Join(dir, classesFile), func(w io.Writer) error {
		b := bufio.NewWriter(w)
		for _, name := range classes {
			fmt.Fprintln(b, strconv.Quote(name))
		}
		return b.Flush()
	})
}

// readClasses reads the names of n classes. It returns an error if the file is missing,
// too long or has another number of names.
func readClasses(dir string, n int) ([]string, error) {
	path := filepath.Join(dir, classesFile)
	text, err := infile.ReadBounded(path, maxClassBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it has the names of the classes; farfield train --resume --out %s writes it, if the data is still there", err, dir)
	}
	if err != nil {
		return nil, err
	}
	var classes []string
	for line := range strings.Lines(string(text)) {
		name, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %.40q is no quoted name", path, len(classes)+1, line)
		}
		if len(classes) == n {
			return nil, fmt.Errorf("%s: has more names than the model has classes, %d", path, n)
		}
		classes = append(classes, name)
	}
	if len(classes) != n {
		return nil, fmt.Errorf("%s: has %d names, the model %d classes", path, len(classes), n)
	}
	return classes, nil
}
