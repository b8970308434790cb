package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// The library of modules, in the form of RFC 8525 and in that of RFC 7895.
const (
	LibraryTop      = libraryModule + ":yang-library"
	ModulesStateTop = libraryModule + ":modules-state"
)

// schemaName is what the library calls its one set of modules and its one schema.
const schemaName = "coe-bridge"

// library is the Source of one of the forms. Only the server's address in it varies.
type library []byte

// Get implements Source.
func (l library) Get(_ context.Context, asked tree.Asked) (*yang.Data, error) {
	if asked.Content == tree.ContentConfig {
		return nil, nil
	}
	base, err := json.Marshal(asked.Base) // the client may send any address
	if err != nil {
		return nil, fmt.Errorf("write where the modules are: %w", err)
	}
	at := slices.Concat(base[:len(base)-1], []byte(ModulesPath)) // within its quotes
	return yang.DecodeObject(bytes.ReplaceAll(l, []byte(`"`+ModulesPath), at), asked.Top)
}

// Trees are the read-only trees of RESTCONF itself: both forms of the library, and
// restconf-state.
func Trees(modules []*yang.Module, streams map[string]stream.Kind) (map[string]tree.ReadOnly, error) {
	trees := map[string]tree.ReadOnly{
		MonitoringTop: {Source: monitoring(streams), Says: "it says what this server can do"},
	}
	for top, write := range map[string]func([]*yang.Module) (library, error){
		LibraryTop: newLibrary, ModulesStateTop: newModulesState,
	} {
		l, err := write(modules)
		if err != nil {
			return nil, err
		}
		trees[top] = tree.ReadOnly{Source: l, Says: "it says which modules this server has"}
	}
	return trees, nil
}

// libraryPart is a module in the library; each form has its own leaves.
type libraryPart struct {
	Name        string   `json:"name"`
	Revision    string   `json:"revision"`
	Namespace   string   `json:"namespace"`
	Location    []string `json:"location,omitempty"`
	Schema      string   `json:"schema,omitempty"`
	Conformance string   `json:"conformance-type,omitempty"`
}

// newLibrary writes the library as RFC 8525 has it.
func newLibrary(modules []*yang.Module) (library, error) {
	var implemented, imported []libraryPart
	for _, m := range modules {
		part := libraryPart{Name: m.Name, Revision: m.Revision, Namespace: m.Namespace, Location: []string{sourcePath(m)}}
		if m.Implemented {
			implemented = append(implemented, part)
		} else {
			imported = append(imported, part)
		}
	}
	return encodeLibrary(map[string]any{
		"module-set": []any{map[string]any{"name": schemaName, "module": implemented, "import-only-module": imported}},
		"schema":     []any{map[string]any{"name": schemaName, "module-set": []string{schemaName}}},
		"datastore": []any{
			map[string]any{"name": "ietf-datastores:running", "schema": schemaName},
			map[string]any{"name": "ietf-datastores:operational", "schema": schemaName},
		},
		"content-id": ContentID(modules),
	})
}

// newModulesState writes the library as RFC 7895 has it.
func newModulesState(modules []*yang.Module) (library, error) {
	var all []libraryPart
	for _, m := range modules {
		part := libraryPart{Name: m.Name, Revision: m.Revision, Namespace: m.Namespace, Schema: sourcePath(m), Conformance: "import"}
		if m.Implemented {
			part.Conformance = "implement"
		}
		all = append(all, part)
	}
	return encodeLibrary(map[string]any{"module": all, "module-set-id": ContentID(modules)})
}

func encodeLibrary(content map[string]any) (library, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("write the library of modules: %w", err)
	}
	return raw, nil
}

// ContentID is the same for equal modules on every server, and differs for others.
func ContentID(modules []*yang.Module) string {
	sum := sha256.New()
	for _, m := range modules {
		fmt.Fprintf(sum, "%s@%s %d\n%s", m.Name, m.Revision, len(m.Text), m.Text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// ModulesPath is before the names of modules.
const ModulesPath = apiRoot + "/modules/"

// sourcePath is where a module's YANG source is.
func sourcePath(m *yang.Module) string {
	return ModulesPath + m.Name + "@" + m.Revision + ".yang"
}

// modulePages are the sources of all modules, by path.
func modulePages(modules []*yang.Module) map[string]Page {
	pages := map[string]Page{}
	for _, m := range modules {
		pages[sourcePath(m)] = textPage(wire.RFC8040, "application/yang", m.Text)
	}
	return pages
}
