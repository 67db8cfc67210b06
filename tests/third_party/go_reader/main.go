// A reader of Shardmill's dataset format, written from docs/dataset-format.md alone.
//
//	go run . DATASET [VERSION [SPLIT POSITION...]]
//
// It prints a JSON object per record: all records of a version (the newest by default), or those at some
// positions of a split, each by one read at the place that the index names. A fault ends it with status 1.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/parquet-go/parquet-go"
	"google.golang.org/protobuf/encoding/protowire"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type shard struct {
	Path        string `json:"path"`
	IndexPath   string `json:"index_path"`
	Split       string `json:"split"`
	NumExamples int    `json:"num_examples"`
	NumBytes    int64  `json:"num_bytes"`
	SHA256      string `json:"sha256"`
	IndexSHA256 string `json:"index_sha256"`
}

type manifest struct {
	FormatVersion int     `json:"format_version"`
	Dataset       string  `json:"dataset"`
	Version       int     `json:"version"`
	Container     string  `json:"container"`
	Shards        []shard `json:"shards"`
}

// The columns of an index that a reader of records needs.
type place struct {
	ID     string `parquet:"id"`
	Offset int64  `parquet:"offset_bytes"`
	Length int64  `parquet:"length_bytes"`
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: reader DATASET [VERSION [SPLIT POSITION...]]"))
	}
	folder, args := os.Args[1], os.Args[2:]
	version := 0
	if len(args) > 0 {
		version = must(strconv.Atoi(args[0]))
	}
	if version == 0 {
		version = newest(folder)
	}
	read := readManifest(folder, version)
	out := json.NewEncoder(os.Stdout)
	if len(args) < 2 {
		for _, one := range read.Shards {
			check(checkFile(filepath.Join(folder, one.Path), one.SHA256))
			for row, at := range readIndex(folder, one) {
				check(out.Encode(describe(one, row, readRecord(folder, read.Container, one, at), at)))
			}
		}
		return
	}
	for _, text := range args[2:] {
		position := must(strconv.Atoi(text))
		for _, one := range read.Shards {
			if one.Split != args[1] {
				continue
			}
			if position < one.NumExamples {
				at := readIndex(folder, one)[position]
				check(out.Encode(describe(one, position, readRecord(folder, read.Container, one, at), at)))
				break
			}
			position -= one.NumExamples
		}
	}
}

// newest returns the largest number of a manifest.
func newest(folder string) int {
	name := regexp.MustCompile(`^([0-9]{6,})\.json$`)
	largest := 0
	for _, entry := range must(os.ReadDir(filepath.Join(folder, "manifests"))) {
		if found := name.FindStringSubmatch(entry.Name()); found != nil {
			largest = max(largest, must(strconv.Atoi(found[1])))
		}
	}
	return largest
}

func readManifest(folder string, version int) manifest {
	data := must(os.ReadFile(filepath.Join(folder, "manifests", fmt.Sprintf("%06d.json", version))))
	var read manifest
	check(json.Unmarshal(data, &read))
	if read.FormatVersion != 2 && read.FormatVersion != 3 {
		fail(fmt.Errorf("format version %d", read.FormatVersion))
	}
	if read.Dataset != filepath.Base(folder) || read.Version != version {
		fail(fmt.Errorf("the manifest is of %s@%d", read.Dataset, read.Version))
	}
	var keys map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // numbers keep the digits that were written
	check(decoder.Decode(&keys))
	if seal, sealed := keys["checksum"].(string); sealed {
		delete(keys, "checksum")
		if seal != digest([]byte(canonical(keys))) {
			fail(fmt.Errorf("the seal of the manifest is broken"))
		}
	}
	return read
}

// canonical returns sorted JSON without white space, in ASCII.
func canonical(value any) string {
	switch value := value.(type) {
	case map[string]any:
		parts := []string{}
		for key := range value {
			parts = append(parts, key)
		}
		slices.Sort(parts) // by bytes of UTF-8, which is by code points
		for i, key := range parts {
			parts[i] = canonical(key) + ":" + canonical(value[key])
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		parts := []string{}
		for _, one := range value {
			parts = append(parts, canonical(one))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case string:
		var text strings.Builder
		short := map[uint16]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}
		for _, unit := range utf16.Encode([]rune(value)) {
			if escape, known := short[unit]; known {
				text.WriteString(escape)
			} else if unit >= ' ' && unit < 127 {
				text.WriteByte(byte(unit))
			} else {
				fmt.Fprintf(&text, `\u%04x`, unit)
			}
		}
		return `"` + text.String() + `"`
	case nil:
		return "null"
	default:
		return fmt.Sprint(value) // a number, true or false
	}
}

func readIndex(folder string, one shard) []place {
	path := filepath.Join(folder, one.IndexPath)
	check(checkFile(path, one.IndexSHA256))
	rows := must(parquet.ReadFile[place](path))
	if len(rows) != one.NumExamples {
		fail(fmt.Errorf("%s has %d rows, the manifest says %d", path, len(rows), one.NumExamples))
	}
	return rows
}

// readRecord returns the payload of a record, a serialised tf.train.Example.
func readRecord(folder, container string, one shard, at place) []byte {
	file := must(os.Open(filepath.Join(folder, one.Path)))
	defer file.Close()
	framed := make([]byte, at.Length)
	must(file.ReadAt(framed, at.Offset))
	if container == "gzip" {
		framed = must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(framed)))))
	}
	size := binary.LittleEndian.Uint64(framed)
	if size != uint64(len(framed)-16) || crc(framed[:8]) != binary.LittleEndian.Uint32(framed[8:]) {
		fail(fmt.Errorf("%s: the length at %d is wrong", one.Path, at.Offset))
	}
	payload := framed[12 : 12+size]
	if crc(payload) != binary.LittleEndian.Uint32(framed[12+size:]) {
		fail(fmt.Errorf("%s: the record at %d is damaged", one.Path, at.Offset))
	}
	return payload
}

func describe(one shard, row int, payload []byte, at place) map[string]any {
	features := map[string]any{}
	for _, all := range fields(payload, 1) { // Example.features
		for _, entry := range fields(all, 1) { // Features.feature
			key := string(fields(entry, 1)[0])
			for _, feature := range fields(entry, 2) {
				features[key] = values(feature)
			}
		}
	}
	if id := features["id"].([]string)[0]; id != hex.EncodeToString([]byte(at.ID)) {
		fail(fmt.Errorf("%s: record %d is %s, the index says %s", one.Path, row, id, at.ID))
	}
	return map[string]any{"split": one.Split, "shard": one.Path, "row": row, "features": features}
}

// values returns the values of a Feature: bytes as hexadecimal digits, floats and integers as numbers.
func values(feature []byte) any {
	if lists := fields(feature, 1); len(lists) > 0 {
		texts := []string{}
		for _, value := range fields(lists[0], 1) {
			texts = append(texts, hex.EncodeToString(value))
		}
		return texts
	}
	if lists := fields(feature, 2); len(lists) > 0 {
		floats := []any{}
		for _, packed := range fields(lists[0], 1) {
			for ; len(packed) > 0; packed = packed[4:] {
				value := float64(math.Float32frombits(binary.LittleEndian.Uint32(packed)))
				if math.IsNaN(value) || math.IsInf(value, 0) { // JSON has no such numbers
					floats = append(floats, fmt.Sprint(value))
				} else {
					floats = append(floats, value)
				}
			}
		}
		return floats
	}
	integers := []int64{}
	for _, list := range fields(feature, 3) {
		for _, packed := range fields(list, 1) {
			for len(packed) > 0 {
				value, size := protowire.ConsumeVarint(packed)
				check(protowire.ParseError(min(size, 0)))
				integers, packed = append(integers, int64(value)), packed[size:]
			}
		}
	}
	return integers
}

// fields returns the contents of the length-delimited fields of a message that have a number.
func fields(message []byte, number protowire.Number) [][]byte {
	found := [][]byte{}
	for len(message) > 0 {
		read, kind, size := protowire.ConsumeTag(message)
		check(protowire.ParseError(min(size, 0)))
		message = message[size:]
		length := protowire.ConsumeFieldValue(read, kind, message)
		check(protowire.ParseError(min(length, 0)))
		if read == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			found = append(found, value)
		}
		message = message[length:]
	}
	return found
}

func crc(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xA282EAD8
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func checkFile(path, expected string) error {
	if found := digest(must(os.ReadFile(path))); found != expected {
		return fmt.Errorf("%s has the SHA-256 %s, the manifest says %s", path, found, expected)
	}
	return nil
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
