package task

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/rng"
)

// classFolder is a folder with a folder of files for each class, or with such
// folders train, valid and test in it.
type classFolder struct {
	classes []string
	files   [3][]classFile
}

type classFile struct {
	path  string
	class int32
}

// readClassFolder lists the files whose names end in one of the suffixes, in the
// order of their names; names that begin with a dot are passed over. Where there
// is no folder train, a tenth of the files is there to choose by and a tenth to be
// judged by, drawn by the seed and the file's place in the list.
func readClassFolder(root string, seed uint64, suffixes ...string) (*classFolder, error) {
	c := &classFolder{}
	if _, err := os.Stat(filepath.Join(root, "train")); err == nil {
		for split := Train; split <= Test; split++ {
			dir := filepath.Join(root, split.String())
			if _, err := os.Stat(dir); err != nil {
				continue
			}
			names, err := listFolders(dir)
			if err != nil {
				return nil, err
			}
			if split == Train {
				c.classes = names
			}
			for _, name := range names {
				class := slices.Index(c.classes, name)
				if class < 0 {
					return nil, fmt.Errorf("%s: class %q is not among those to learn from, %q", dir, name, c.classes)
				}
				if c.files[split], err = appendFiles(c.files[split], filepath.Join(dir, name), int32(class), suffixes); err != nil {
					return nil, err
				}
			}
		}
		return c, c.checkClasses(root, suffixes)
	}
	var err error
	if c.classes, err = listFolders(root); err != nil {
		return nil, err
	}
	var all []classFile
	for class, name := range c.classes {
		if all, err = appendFiles(all, filepath.Join(root, name), int32(class), suffixes); err != nil {
			return nil, err
		}
	}
	for i, f := range all {
		split := splitOf(seed, i)
		c.files[split] = append(c.files[split], f)
	}
	return c, c.checkClasses(root, suffixes)
}

// splitOf draws the split of item i: eight, one and one of ten.
func splitOf(seed uint64, i int) Split {
	switch rng.New(seed).Fold(3).Intn(uint64(i), 10) {
	case 0:
		return Test
	case 1:
		return Valid
	}
	return Train
}

func (c *classFolder) checkClasses(root string, suffixes []string) error {
	if len(c.classes) < 2 || len(c.files[Train]) == 0 {
		return fmt.Errorf("%s: it holds %d folders with %d files %s to learn from; a folder for each of two classes or more is needed",
			root, len(c.classes), len(c.files[Train]), strings.Join(suffixes, ", "))
	}
	return nil
}

func (c *classFolder) countSamples() [3]int {
	return [3]int{len(c.files[0]), len(c.files[1]), len(c.files[2])}
}

// listFolders lists the folders in dir by name.
func listFolders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// appendFiles appends the files in dir and in the folders in it.
func appendFiles(list []classFile, dir string, class int32, suffixes []string) ([]classFile, error) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		suffix := strings.ToLower(filepath.Ext(path))
		if len(suffixes) == 0 || slices.Contains(suffixes, suffix) {
			list = append(list, classFile{path, class})
		}
		return nil
	})
	return list, err
}

// isClassOrdered says that a source of the files has them in the order of their classes.
func (c *classFolder) isClassOrdered() bool { return true }
