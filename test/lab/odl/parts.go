package odl

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed parts/neutronvpn.xml
var stubBlueprint string

// stubManifest is the manifest of the bundle that replaces Netvirt's part for Neutron. A line has at most 72
// characters.
const stubManifest = `Manifest-Version: 1.0
Bundle-ManifestVersion: 2
Bundle-SymbolicName: coebridge.neutronvpn.absent
Bundle-Version: 1.0.0
Import-Package: org.opendaylight.netvirt.neutronvpn.interfaces
DynamicImport-Package: *

`

const emptyManifest = "Manifest-Version: 1.0\n\n"

// ours is the group of the artifacts that this package makes.
const ours = "coebridge.test"

var (
	feature = artifact{ours, "netvirt-restconf", "1.0.0", "features", "xml"}
	stub    = artifact{ours, "neutronvpn-absent", "1.0.0", "", "jar"}

	// The datastore needs a rebuild of this library that was not published. The original works too.
	levelDB        = artifact{"org.fusesource.leveldbjni", "leveldbjni-all", "1.8", "", "jar"}
	levelDBRebuild = artifact{"org.fusesource.leveldbjni", "leveldbjni-all", "1.8-odl", "", "jar"}
	// The datastore also needs an XML library that was not published. Java has its own.
	xmlLibrary = artifact{"com.bea.xml", "jsr173-ri", "1.0", "", "jar"}
)

// prepare adds the artifacts that Maven cannot download to the repository, and writes the project of the
// distribution to work.
func (d distribution) prepare(ctx context.Context, m maven, work string) error {
	if err := os.MkdirAll(m.repository, 0o755); err != nil {
		return err
	}
	for _, step := range []func(context.Context, maven) error{putLevelDB, putXMLLibrary, putStub, d.putFeature} {
		if err := step(ctx, m); err != nil {
			return err
		}
	}
	pom, err := d.pom(feature)
	if err != nil {
		return fmt.Errorf("make project: %w", err)
	}
	return os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644)
}

func putLevelDB(ctx context.Context, m maven) error {
	path, err := m.get(ctx, levelDB)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", levelDB.name, err)
	}
	return m.put(levelDBRebuild, content)
}

func putXMLLibrary(_ context.Context, m maven) error {
	return putJar(m, xmlLibrary, entry{manifestPath, emptyManifest})
}

func putStub(_ context.Context, m maven) error {
	return putJar(m, stub, entry{manifestPath, stubManifest}, entry{"OSGI-INF/blueprint/neutronvpn.xml", stubBlueprint})
}

func (d distribution) putFeature(ctx context.Context, m maven) error {
	path, err := m.get(ctx, artifact{"org.opendaylight.netvirt", "odl-netvirt-impl", d.Netvirt, "features", "xml"})
	if err != nil {
		return err
	}
	published, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read Netvirt's feature: %w", err)
	}
	adapted, err := adaptFeature(published, d.Netconf)
	if err != nil {
		return fmt.Errorf("adapt Netvirt's feature: %w", err)
	}
	return m.put(feature, adapted)
}

// manifestPath is the first entry of every jar.
const manifestPath = "META-INF/MANIFEST.MF"

// entry is a file in a jar.
type entry struct{ path, content string }

func putJar(m maven, a artifact, entries ...entry) error {
	var jar bytes.Buffer
	w := zip.NewWriter(&jar)
	for _, e := range entries {
		file, err := w.Create(e.path)
		if err == nil {
			_, err = file.Write([]byte(e.content))
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", a.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("make %s: %w", a.name, err)
	}
	return m.put(a, jar.Bytes())
}
