// Package sqlschema is what packages keysql and idemsql share: how the tables of
// a store are made, checked and named in each database.
//
// A database is an [Engine] here, and in each of the stores a table of its
// statements and the files of its schema.
package sqlschema
