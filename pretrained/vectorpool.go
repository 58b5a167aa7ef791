package pretrained

import "github.com/farfield-ml/farfield/model"

// VectorPooling returns the pooling of the vectors of a folder. It is model.PoolMean where the folder
// does not say, and in place of poolings that models do not have. It returns an error if modules.json
// or a file beside it cannot be read.
func VectorPooling(dir string) (model.Pool, error) {
	s, err := readSentence(dir, 0)
	if err != nil {
		return "", err
	}
	if len(s.pools) == 1 {
		switch s.pools[0] {
		case poolFirst:
			return model.PoolFirst, nil
		case poolLast:
			return model.PoolLast, nil
		}
	}
	return model.PoolMean, nil
}
