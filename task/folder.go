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

// classFolder lists a folder that has one folder of files per class, or has such folders in
// train, valid and test.
type classFolder struct {
	classes []string
	files   [3][]classFile // by split
}

// classFile is a file with the number of its class.
type classFile struct {
	path  string
	class int32
}

// readClassFolder lists the files with one of the suffixes, in the order of their names. It
// ignores names that begin with a dot. Without a folder train the seed and the file's index
// draw a tenth of the files for each of validation and test. It returns an error if there are
// fewer than two classes or no training files.
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

// splitOf draws the split of item i, with probabilities 0.8, 0.1 and 0.1.
func splitOf(seed uint64, i int) Split {
	switch rng.New(seed).Fold(3).Intn(uint64(i), 10) {
	case 0:
		return Test
	case 1:
		return Valid
	}
	return Train
}

// checkClasses returns an error if there are fewer than two classes or no training files.
func (c *classFolder) checkClasses(root string, suffixes []string) error {
	if len(c.classes) < 2 || len(c.files[Train]) == 0 {
		return fmt.Errorf("%s: it holds %d folders with %d files %s to learn from; a folder for each of two classes or more is needed",
			root, len(c.classes), len(c.files[Train]), strings.Join(suffixes, ", "))
	}
	return nil
}

// countSamples returns the number of files by split.
func (c *classFolder) countSamples() [3]int {
	return [3]int{len(c.files[0]), len(c.files[1]), len(c.files[2])}
}

// listFolders returns the names of the folders in dir, sorted.
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

// appendFiles appends the files in dir and its subfolders that have one of the suffixes.
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

// isClassOrdered returns true: files are listed in the order of their classes.
func (c *classFolder) isClassOrdered() bool { return true }
