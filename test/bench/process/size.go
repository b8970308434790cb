package process

import (
	"io/fs"
	"path/filepath"
)

// SizeOf returns the size of a file, or of the files in a folder.
func SizeOf(path string) (bytes float64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += float64(info.Size())
		}
		return err
	})
	return bytes, err
}
