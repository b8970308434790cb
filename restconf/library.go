package restconf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/yang"
)

// The library of modules, in the form of RFC 8525 and in that of RFC 7895.
const (
	libraryTop      = libraryModule + ":yang-library"
	modulesStateTop = libraryModule + ":modules-state"
)

// schemaName is what the library calls its one set of modules and its one schema.
const schemaName = "coe-bridge"

// library is the Source of one of the forms: the same as long as the server runs, but for
// where clients find that.
type library []byte

// Get implements Source.
func (l library) Get(_ context.Context, asked Asked) (*yang.Data, error) {
	if asked.Content == ContentConfig {
		return nil, nil
	}
	base, err := json.Marshal(asked.Base) // a client may say what it likes
	if err != nil {
		return nil, fmt.Errorf("write where the modules are: %w", err)
	}
	at := slices.Concat(base[:len(base)-1], []byte(modulesPath)) // within its quotes
	return yang.DecodeObject(bytes.ReplaceAll(l, []byte(`"`+modulesPath), at), asked.Top)
}

// addLibrary adds both forms to the read-only trees.
func addLibrary(trees map[string]ReadOnly, schema *yang.Schema) error {
	for top, write := range map[string]func(*yang.Schema) (library, error){
		libraryTop: newLibrary, modulesStateTop: newModulesState,
	} {
		l, err := write(schema)
		if err != nil {
			return err
		}
		trees[top] = ReadOnly{Source: l, Says: "it says which modules this server has"}
	}
	return nil
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
func newLibrary(schema *yang.Schema) (library, error) {
	var implemented, imported []libraryPart
	for _, m := range allModules(schema) {
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
		"content-id": contentID(schema),
	})
}

// newModulesState writes the library as RFC 7895 has it.
func newModulesState(schema *yang.Schema) (library, error) {
	var all []libraryPart
	for _, m := range allModules(schema) {
		part := libraryPart{Name: m.Name, Revision: m.Revision, Namespace: m.Namespace, Schema: sourcePath(m), Conformance: "import"}
		if m.Implemented {
			part.Conformance = "implement"
		}
		all = append(all, part)
	}
	return encodeLibrary(map[string]any{"module": all, "module-set-id": contentID(schema)})
}

func encodeLibrary(content map[string]any) (library, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("write the library of modules: %w", err)
	}
	return raw, nil
}

// contentID is the same for equal modules, whoever serves them, and another for any
// others.
func contentID(schema *yang.Schema) string {
	sum := sha256.New()
	for _, m := range allModules(schema) {
		fmt.Fprintf(sum, "%s@%s %d\n%s", m.Name, m.Revision, len(m.Text), m.Text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// modulesPath is before the names of modules.
const modulesPath = apiRoot + "/modules/"

// sourcePath is where a module's YANG source is.
func sourcePath(m *yang.Module) string {
	return modulesPath + m.Name + "@" + m.Revision + ".yang"
}

// modulePages are the sources of all modules, by path.
func modulePages(schema *yang.Schema) map[string]page {
	pages := map[string]page{}
	for _, m := range allModules(schema) {
		pages[sourcePath(m)] = textPage(rfc8040, "application/yang", m.Text)
	}
	return pages
}
