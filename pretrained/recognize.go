package pretrained

import (
	"encoding/json"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/infile"
)

// IsFolder reports whether dir has a config.json with a model_type, as folders in the
// Hugging Face layout have. Open may still refuse the folder.
func IsFolder(dir string) bool {
	var c map[string]json.RawMessage
	if infile.ReadJSON(filepath.Join(dir, configFile), maxConfig, &c) != nil {
		return false
	}
	_, kind := c["model_type"]
	_, classes := c["architectures"]
	return kind || classes
}
