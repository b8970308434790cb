package kubelab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Names of images for the pods of a lab. None is pulled.
const (
	// TestImage has agnhost, the test program of Kubernetes; its first argument is the command.
	TestImage   = "localhost/agnhost:1"
	bridgeImage = "localhost/coe-bridge:lab"
	etcdImage   = "localhost/etcd:lab"
	dnsImage    = "localhost/coredns:1"
	pauseImage  = "localhost/pause:1"
)

// makeImages builds the programs of this tree, and writes the images of the lab.
func (l *Lab) makeImages(ctx context.Context) error {
	bin, dir := l.dir.path("bin"), l.dir.path("images")
	for _, d := range []string{bin, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("make folder of images: %w", err)
		}
	}
	for name, pkg := range map[string]string{"node": nodePackage, "pause": pausePackage} {
		if err := buildOwn(ctx, pkg, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for _, i := range append([]Image{
		{Name: pauseImage, Entry: []string{"/pause"}, Files: map[string]string{filepath.Join(bin, "pause"): "pause"}},
		{Name: TestImage, Entry: []string{"/agnhost"}, Files: map[string]string{l.tools.Agnhost: "agnhost"}},
		{Name: dnsImage, Entry: []string{"/coredns"}, Files: map[string]string{l.tools.CoreDNS: "coredns"}},
		{
			Name: bridgeImage, Entry: []string{"/coe-bridge"},
			Files: map[string]string{filepath.Join(l.cfg.Bin, "coe-bridge"): "coe-bridge", filepath.Join(l.cfg.Bin, "coe-cni"): "coe-cni"},
		},
		{
			Name: etcdImage, Entry: []string{"etcd"},
			Files: map[string]string{l.tools.hyperkube: "usr/local/bin/hyperkube"}, Links: map[string]string{"usr/local/bin/etcd": "hyperkube"},
		},
	}, l.cfg.Images...) {
		if err := i.write(l.imageFile(i.Name)); err != nil {
			return err
		}
	}
	return nil
}

// imageFile returns the path of an image.
func (l *Lab) imageFile(name string) string { return l.dir.path("images", filepath.Base(name)+".tar") }

// imagesOf returns the images of a node: all, except etcd's, which only the first node needs.
func (l *Lab) imagesOf(node int) []string {
	images := []string{pauseImage, bridgeImage, TestImage, dnsImage}
	for _, i := range l.cfg.Images {
		images = append(images, i.Name)
	}
	if node == 0 {
		images = append(images, etcdImage)
	}
	return images
}
