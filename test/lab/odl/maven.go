package odl

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
)

//go:embed parts/distribution.xml
var pomTemplate string

// getPlugin downloads one file.
const getPlugin = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"

// artifact is a file in a Maven repository.
type artifact struct{ group, name, version, classifier, extension string }

func (a artifact) coordinates() string {
	c := strings.Join([]string{a.group, a.name, a.version, a.extension}, ":")
	if a.classifier != "" {
		c += ":" + a.classifier
	}
	return c
}

// path returns its path in a repository.
func (a artifact) path() string {
	return a.stem(a.classifier) + "." + a.extension
}

func (a artifact) stem(classifier string) string {
	name := a.name + "-" + a.version
	if classifier != "" {
		name += "-" + classifier
	}
	return filepath.Join(filepath.FromSlash(strings.ReplaceAll(a.group, ".", "/")), a.name, a.version, name)
}

// maven runs Maven with a separate repository.
type maven struct {
	repository string // folder
	java       string
	progress   io.Writer
}

func (m maven) run(ctx context.Context, title, dir string, args ...string) error {
	// With --update-snapshots it tries failed downloads again.
	args = append([]string{"--batch-mode", "-Dstyle.color=never", "--update-snapshots", "-Dmaven.repo.local=" + m.repository}, args...)
	cmd := exec.Command("mvn", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "JAVA_HOME="+m.java)
	return cache.Run(ctx, m.progress, title, cmd)
}

// get returns the path of a published artifact. It downloads the artifact if the repository does not have it.
func (m maven) get(ctx context.Context, a artifact) (string, error) {
	path := filepath.Join(m.repository, a.path())
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, m.run(ctx, "getting "+a.name, m.repository, getPlugin, "-Dtransitive=false", "-Dartifact="+a.coordinates())
}

// put adds an own artifact to the repository.
func (m maven) put(a artifact, content []byte) error {
	pom := fmt.Sprintf(`<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>%s</groupId>
  <artifactId>%s</artifactId>
  <version>%s</version>
  <packaging>%s</packaging>
</project>
`, a.group, a.name, a.version, a.extension)
	path := filepath.Join(m.repository, a.path())
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("put %s into the repository: %w", a.name, err)
	}
	for file, text := range map[string][]byte{path: content, filepath.Join(m.repository, a.stem("")+".pom"): []byte(pom)} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("put %s into the repository: %w", a.name, err)
		}
	}
	return nil
}

// pom returns the project of a distribution that boots a feature.
func (d distribution) pom(feature artifact) ([]byte, error) {
	t, err := template.New("pom").Parse(pomTemplate)
	if err != nil {
		return nil, err
	}
	var pom bytes.Buffer
	err = t.Execute(&pom, map[string]string{
		"Parent": d.ODLParent, "Group": feature.group, "Feature": feature.name, "Version": feature.version, "Classifier": feature.classifier,
	})
	return pom.Bytes(), err
}
