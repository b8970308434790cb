package kubelab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image is a container image with one layer of files of this machine.
type Image struct {
	Name    string            // with its tag
	Entry   []string          // the program
	Command []string          // its arguments, if the pod has none
	Files   map[string]string // paths in the image, by path on this machine
	Links   map[string]string // targets, by path in the image
}

// object is a JSON object.
type object map[string]any

// Media types of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// write writes the image as an archive of an OCI layout, which containerd can import.
func (i Image) write(file string) error {
	if err := i.writeTo(file); err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return nil
}

func (i Image) writeTo(file string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config := encode(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Entrypoint": i.Entry, "Cmd": i.Command, "Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin:/"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	manifest := encode(object{
		"schemaVersion": 2, "mediaType": typeManifest,
		"config": descriptor(typeConfig, config), "layers": []object{descriptor(typeLayer, layer)},
	})
	entry := descriptor(typeManifest, manifest)
	entry["platform"] = object{"architecture": runtime.GOARCH, "os": "linux"}
	entry["annotations"] = object{"io.containerd.image.name": i.Name}
	index := encode(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []object{entry}})

	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	archive := tar.NewWriter(out)
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", encode(object{"imageLayoutVersion": "1.0.0"})}, {"index.json", index},
		{blob(config), config}, {blob(manifest), manifest}, {blob(layer), layer},
	} {
		if err := addFile(archive, f.name, 0o644, int64(len(f.content)), bytes.NewReader(f.content)); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return out.Close()
}

// layer returns the layer, which is equal for images with the same files, so that a node stores it once.
func (i Image) layer() ([]byte, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	made := map[string]bool{".": true}
	for _, dir := range []string{"tmp/.", "etc/.", "run/."} {
		if err := addFolders(archive, made, dir); err != nil {
			return nil, err
		}
	}
	for _, from := range slices.Sorted(maps.Keys(i.Files)) {
		to := i.Files[from]
		if err := addFolders(archive, made, to); err != nil {
			return nil, err
		}
		if err := copyFile(archive, from, to); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		if err := addFolders(archive, made, name); err != nil {
			return nil, err
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: i.Links[name], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return layer.Bytes(), err
}

// addFolders adds the missing parent directories of a file.
func addFolders(archive *tar.Writer, made map[string]bool, file string) error {
	dir := path.Dir(file)
	if made[dir] {
		return nil
	}
	if err := addFolders(archive, made, dir); err != nil {
		return err
	}
	made[dir] = true
	mode := int64(0o755)
	if dir == "tmp" {
		mode = 0o1777
	}
	return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode})
}

func copyFile(archive *tar.Writer, from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return addFile(archive, to, 0o755, info.Size(), file)
}

func addFile(archive *tar.Writer, name string, mode, size int64, content io.Reader) error {
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

func descriptor(kind string, content []byte) object {
	return object{"mediaType": kind, "digest": digest(content), "size": len(content)}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// blob returns the path of a content in a layout.
func blob(content []byte) string { return "blobs/" + strings.Replace(digest(content), ":", "/", 1) }

// encode encodes an object that always encodes.
func encode(o object) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return text
}
