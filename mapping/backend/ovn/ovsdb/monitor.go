package ovsdb

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Monitor says which rows a connection follows (RFC 7047, section 4.1.5). Its functions run on
// the goroutine of the connection.
type Monitor struct {
	Table   string
	Columns []string
	// Row is shown a row: its UUID, and the JSON of its Columns, nil for a column that the server leaves
	// out. gone says that the row was deleted; the columns are then its last. The changes of one
	// transaction have no order.
	Row func(uuid string, columns []jsontext.Value, gone bool)
	// Begun is called once, when Row was shown all rows that the table has.
	Begun func()
}

// Follow starts a monitor, and returns when it has begun. Until the connection ends, Row is
// shown a row again after each change of its columns. A connection has one monitor.
func (c *Conn) Follow(ctx context.Context, m *Monitor) error {
	call := &Call{monitor: m, done: make(chan struct{})}
	err := c.send(ctx, call, "monitor", func(text []byte) []byte {
		text = append(appendText(append(text, `,null,{`...), m.Table), `:{"columns":[`...)
		for i, column := range m.Columns {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendText(text, column)
		}
		return append(text, `]}}`...)
	})
	if err != nil {
		return err
	}
	_, err = c.Wait(ctx, call)
	return err
}

// notified reads the parameters of a notification of the monitor.
func (m *Monitor) notified(params jsontext.Value) error {
	in := jsontext.NewDecoder(bytes.NewReader(params), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := open(in, '['); err != nil {
		return err
	}
	if err := in.SkipValue(); err != nil {
		return err
	}
	return m.updates(in)
}

// updates reads an object of tables, each with the changes of its rows by UUID.
func (m *Monitor) updates(in *jsontext.Decoder) error {
	if in.PeekKind() != '{' {
		return errors.New("a monitor without an object of tables")
	}
	return object(in, func([]byte) error {
		return object(in, func(uuid []byte) error { return m.update(in, string(uuid)) })
	})
}

// update reads the change of a row. Its member "new" has all columns, and is missing if the row is
// gone. "old" has all columns only then.
func (m *Monitor) update(in *jsontext.Decoder, uuid string) error {
	columns, gone := make([]jsontext.Value, len(m.Columns)), true
	err := object(in, func(name []byte) error {
		switch {
		case string(name) == "new":
			gone = false
			clear(columns)
		case string(name) != "old" || !gone:
			return in.SkipValue()
		}
		return object(in, func(name []byte) (err error) {
			i := slices.Index(m.Columns, string(name))
			if i < 0 {
				return in.SkipValue()
			}
			columns[i], err = value(in)
			return err
		})
	})
	if err == nil {
		m.Row(uuid, columns, gone)
	}
	return err
}
